"""A window in a few rows, for those who cannot see its charts."""

from __future__ import annotations

from dashboard.queries.reduction import bin_of, round_up
from diagnose.reading import Scope

NUM_ROWS = 20
"""Rows of the table, about."""


def stretch_ns(scope: Scope) -> int:
    """Returns the length of a row's stretch: round, and about `NUM_ROWS` in the window."""
    return round_up(max(1, scope.duration_ns // NUM_ROWS))


def per_stretch(scope: Scope) -> str:
    """Returns a row a stretch: steps, requests, blocks, preemptions, tokens."""
    return f"""
SELECT min(ts) AS ts, sum(num_repeats)::BIGINT AS steps,
       max(num_running)::BIGINT AS running, max(num_waiting)::BIGINT AS waiting,
       min(num_blocks_free_unhashed::BIGINT + num_blocks_free_cached::BIGINT) AS free,
       max(head_blocks_needed)::BIGINT AS needed,
       sum(num_preempted)::BIGINT AS preempted,
       sum(num_scheduled_tokens)::BIGINT AS tokens,
       sum(num_recomputed_tokens)::BIGINT AS recomputed,
       mode(stop_reason_name(stop_reason)) AS stop
FROM steps
WHERE {scope.where()}
GROUP BY {bin_of(stretch_ns(scope))}
ORDER BY ts
""".strip()
