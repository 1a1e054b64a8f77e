"""How many KV blocks running requests can hold at most, step by step.

An engine does not add up what its running requests hold: what nobody else has counts as theirs, and
a block that was lost would be hidden among it. But each of them has a length, and no request holds
more blocks than its length takes. A request counts from the step that admits it to the one after
that which ends it, evicted or not: the bound may be too high, and too low for a moment at most.

Not responsible for blocks of waiting requests, or of requests that have ended: a step tells them.
"""

from __future__ import annotations

from diagnose.facts import EngineSettings

MOST_SQL = """
WITH admitted AS (
    SELECT request, min(step) AS step FROM request_events
    WHERE engine = {{engine}} AND ts <= {{end}} AND kind = event_kind('admitted') GROUP BY request
), stays AS (
    SELECT a.step AS first_step, r.finished_step + {after} AS last_step, {blocks} AS num_blocks
    FROM requests AS r JOIN admitted AS a USING (request)
    WHERE r.engine = {{engine}} AND r.ts <= {{end}}
      AND coalesce(r.finished_ts, {{end}}) >= {{start}}
), moves AS (
    SELECT first_step AS step, num_blocks, 1 AS num_requests FROM stays
    UNION ALL
    SELECT last_step, -num_blocks, -1 FROM stays WHERE last_step IS NOT NULL
), sums AS (
    SELECT step, sum(sum(num_blocks)) OVER (ORDER BY step)::BIGINT AS num_blocks,
           sum(sum(num_requests)) OVER (ORDER BY step)::BIGINT AS num_requests
    FROM moves GROUP BY step
)
SELECT s.*, least(
    s.num_blocks_running::BIGINT,
    coalesce(m.num_blocks, 0)
        + {largest} * greatest(s.num_running::BIGINT - coalesce(m.num_requests, 0), 0)
) AS most_held
FROM ({steps}) AS s ASOF LEFT JOIN sums AS m ON s.step >= m.step
"""
AFTER_STEPS = 2
"""A request that has ended counts for so many steps more: with steps in flight its blocks come back
with a later one."""
ROUNDS_AHEAD = 2
"""Tokens of so many steps may have blocks before they are counted."""


def with_most_held(steps: str, settings: EngineSettings, pool: int) -> str:
    """Returns a statement template: some steps of the window, with a column `most_held`.

    That is the most KV blocks that their running requests can hold, at most what nobody else has. A
    running request whose arrival is not recorded may have the longest length that there is, and so
    may a streaming one, whose prompt grows. Without the layout of the KV cache there is no bound.

    Args:
        steps: a statement template of whole rows of `steps`.
        settings: the engine's.
        pool: its usable blocks.
    """
    if not settings.kv_groups:
        return f"SELECT s.*, s.num_blocks_running::BIGINT AS most_held FROM ({steps}) AS s"
    limit = settings.max_model_len or pool * (settings.block_size or 1)
    ahead = ROUNDS_AHEAD * (1 + (settings.num_speculative_tokens or 0))
    outputs = f"CASE WHEN is_finished THEN num_output_tokens ELSE coalesce(max_tokens, {limit}) END"
    known = f"coalesce(num_prompt_tokens::BIGINT + ({outputs})::BIGINT, {limit})"
    length = f'CASE WHEN "session" IS NULL THEN least({known}, {limit}) ELSE {limit} END'
    blocks = settings.blocks_sql(f"({length} + {ahead})")
    largest = settings.blocks_sql(str(limit + ahead))
    return MOST_SQL.format(
        blocks=f"({blocks})::BIGINT", largest=f"({largest})", after=AFTER_STEPS, steps=steps
    )
