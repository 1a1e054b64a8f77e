"""KV blocks: who holds them, what the queue head lacks, and the numbers in the titles."""

from __future__ import annotations

from dashboard.queries.panels.states import QUIET_AFTER, changes, first_x, since_step
from dashboard.queries.reduction import MAX_RUNS, bin_of, x_of, x_of_bin
from diagnose.reading import Scope

_LAYERS = """
levels AS (
  SELECT *, running + waiting AS waiting_top, running + waiting + ended AS ended_top,
         running + waiting + ended + cached AS cached_top
  FROM states
),
layers AS (
  SELECT {keep}, unnest(['running', 'waiting', 'ended', 'cached']) AS series,
         unnest([0, running, waiting_top, ended_top]) AS y,
         unnest([running, waiting_top, ended_top, cached_top]) AS y2
  FROM levels
)
""".strip()

_BLOCKS = """num_blocks_running AS running, num_blocks_waiting AS waiting,
         coalesce(num_blocks_finished, 0) + coalesce(num_blocks_deferred_free, 0) AS ended,
         num_blocks_free_cached AS cached"""


def blocks_runs(scope: Scope, since_ts: int | None = None) -> str:
    """Returns who holds the KV blocks, stacked from below, a row a change."""
    return f"""
WITH states AS (
  SELECT step, num_repeats, ts, {_BLOCKS}
  FROM kv_pressure
  WHERE {since_step(scope, since_ts).where()} AND num_blocks_running IS NOT NULL
),
{_LAYERS.format(keep="step, num_repeats, ts")}
SELECT {first_x(scope)} AS x, series, y, y2
FROM layers
{changes("y, y2")}
ORDER BY ts
LIMIT {MAX_RUNS + 1}
""".strip()


def blocks_stretches(scope: Scope, length_ns: int, since_ts: int | None = None) -> str:
    """Returns the same, averaged over stretches."""
    columns = ("running", "waiting", "ended", "cached")
    means = ", ".join(f"avg({name}) AS {name}" for name in columns)
    lasts = ", ".join(f"arg_max({name}, step) AS last_{name}" for name in columns)
    return f"""
WITH blocks AS (
  SELECT step, greatest(ts, {scope.start_ts}) AS ts, {_BLOCKS}
  FROM kv_pressure
  WHERE {since_step(scope, since_ts).where()} AND num_blocks_running IS NOT NULL
),
stretches AS (
  SELECT {bin_of(length_ns)} AS bin, {means}, {lasts} FROM blocks GROUP BY ALL
),
states AS (
  SELECT bin, {", ".join(columns)} FROM stretches
  UNION ALL
  SELECT bin + 1, {", ".join(f"last_{name}" for name in columns)} FROM stretches {QUIET_AFTER}
),
{_LAYERS.format(keep="bin")}
SELECT {x_of_bin(scope, length_ns)} AS x, series, y, y2 FROM layers ORDER BY bin
""".strip()


def need_runs(scope: Scope, since_ts: int | None = None) -> str:
    """Returns free blocks and what the queue head needs, a row a change, with its end."""
    return f"""
WITH changes AS (
  SELECT ts, num_blocks_free AS free, head_blocks_needed AS need
  FROM kv_pressure
  WHERE {since_step(scope, since_ts).where()} AND num_blocks_free IS NOT NULL
  WINDOW steps AS (ORDER BY step)
  QUALIFY row_number() OVER steps = 1
    OR step > lag(step + num_repeats) OVER steps
    OR (free, need) IS DISTINCT FROM lag((free, need)) OVER steps
)
SELECT {first_x(scope)} AS x, {x_of(scope, "lead(ts) OVER (ORDER BY ts)")} AS x2,
       free, need
FROM changes
ORDER BY ts
LIMIT {MAX_RUNS + 1}
""".strip()


def need_stretches(scope: Scope, length_ns: int, since_ts: int | None = None) -> str:
    """Returns the fewest free blocks and the largest need of each stretch."""
    return f"""
WITH blocks AS (
  SELECT step, greatest(ts, {scope.start_ts}) AS ts, num_blocks_free, head_blocks_needed
  FROM kv_pressure
  WHERE {since_step(scope, since_ts).where()} AND num_blocks_free IS NOT NULL
),
stretches AS (
  SELECT {bin_of(length_ns)} AS bin,
         min(num_blocks_free) AS free, max(head_blocks_needed) AS need,
         arg_max(num_blocks_free, step) AS last_free,
         arg_max_null(head_blocks_needed, step) AS last_need
  FROM blocks GROUP BY ALL
),
states AS (
  SELECT bin, free, need FROM stretches
  UNION ALL
  SELECT bin + 1, last_free, last_need FROM stretches {QUIET_AFTER}
)
SELECT {x_of_bin(scope, length_ns)} AS x,
       {x_of_bin(scope, length_ns, "lead(bin) OVER (ORDER BY bin)")} AS x2, free, need
FROM states
ORDER BY bin
""".strip()


def facts(scope: Scope) -> str:
    """Returns the numbers in the panels' titles."""
    return f"""
SELECT sum(num_repeats)::BIGINT AS num_steps,
       max(num_blocks_pool) AS pool,
       (sum(num_repeats) FILTER (num_blocks_free <= 0.05 * num_blocks_pool))::BIGINT AS num_full,
       (sum(num_repeats) FILTER (num_blocks_short > 0))::BIGINT AS num_short,
       count(num_blocks_short) AS num_needs,
       max(head_blocks_needed) AS max_need,
       max(num_blocks_waiting) AS max_held,
       min(num_blocks_free) AS min_free
FROM kv_pressure
WHERE {scope.where()}
""".strip()
