"""What the panels of states share.

Such a panel has two forms. `*_runs` gives a row a change of state (run-length encoded).
`*_stretches` cuts the window into equal stretches and averages, for windows with more changes than
can be drawn; where nothing happens after a stretch, the last state of it holds, not its average.
Both give the same columns. `since_ts` is the step before the window, whose state holds at its
beginning.
"""

from __future__ import annotations

from dashboard.queries.reduction import x_of
from diagnose.reading import Scope

QUIET_AFTER = "QUALIFY lead(bin) OVER (ORDER BY bin) IS DISTINCT FROM bin + 1"
"""Keeps the stretches that no other follows: their last state holds from there on."""


def since_step(scope: Scope, since_ts: int | None) -> Scope:
    """Returns the window from the step before it on, whose state still holds when it begins."""
    start = scope.start_ts if since_ts is None else min(since_ts, scope.start_ts)
    return Scope(scope.engine, start, scope.end_ts)


def first_x(scope: Scope) -> str:
    """Returns SQL for where a run begins, which is not before the window does."""
    return f"greatest({x_of(scope)}, 0)"


def changes(state: str) -> str:
    """Returns SQL that keeps the rows of a series in which a state begins."""
    return f"""WINDOW life AS (PARTITION BY series ORDER BY step)
QUALIFY row_number() OVER life = 1
  OR step > lag(step + num_repeats) OVER life
  OR ({state}) IS DISTINCT FROM lag(({state})) OVER life"""
