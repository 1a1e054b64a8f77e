"""The statements behind the seven panels of the overview.

A panel of states has two forms. `*_runs` gives a row a change of state (run-length encoded);
`*_stretches` cuts the window into equal stretches and averages, for windows with more changes than
can be drawn. Both give the same columns.
"""

from __future__ import annotations

from dashboard.queries.reduction import MAX_MARKS, MAX_POINTS, bin_of, x_of
from diagnose.reading import Scope
from telemetry.vocabulary import StopReason

KV_REASONS = (
    StopReason.kv_blocks_chunk,
    StopReason.kv_blocks_whole_prompt,
    StopReason.kv_watermark,
    StopReason.kv_reserved_for_loads,
    StopReason.loaded_needs_blocks,
)
"""The reasons that people call "KV blocks"."""


def arrivals(scope: Scope) -> str:
    """Returns a row an arrival and a row an end."""
    return f"""
SELECT {x_of(scope)} AS x, 'arrived' AS kind, request FROM request_arrivals
WHERE {scope.where()}
UNION ALL
SELECT {x_of(scope)}, 'finished', request FROM request_finishes
WHERE {scope.where()}
ORDER BY x
LIMIT {2 * MAX_MARKS + 1}
""".strip()


def arrivals_per_bin(scope: Scope, length_ns: int) -> str:
    """Returns how many came and went in each bin."""
    number = bin_of(scope, length_ns)
    return f"""
SELECT {number} * {length_ns} / 1e6 AS x, kind, count(*) AS n
FROM (
  SELECT ts, 'arrived' AS kind FROM request_arrivals WHERE {scope.where()}
  UNION ALL
  SELECT ts, 'finished' FROM request_finishes WHERE {scope.where()}
)
GROUP BY ALL ORDER BY x
""".strip()


def preemptions_per_bin(scope: Scope, length_ns: int) -> str:
    """Returns preemptions by cause in each bin; `unattributed` is what steps counted beyond."""
    number = bin_of(scope, length_ns)
    return f"""
WITH causes AS (
  SELECT {number} AS bin, cause, count(*) AS n
  FROM preemptions WHERE {scope.where()} GROUP BY ALL
),
counted AS (
  SELECT {number} AS bin, sum(num_preempted)::BIGINT AS n
  FROM steps WHERE {scope.where()} GROUP BY ALL
)
SELECT bin * {length_ns} / 1e6 AS x, coalesce(cause, 'unattributed') AS cause, n FROM causes
UNION ALL
SELECT c.bin * {length_ns} / 1e6, 'unattributed', c.n - coalesce(r.n, 0)
FROM counted c
LEFT JOIN (
  SELECT bin, sum(n)::BIGINT AS n FROM causes
  WHERE cause IS DISTINCT FROM 'cache_reset' GROUP BY bin
) r USING (bin)
WHERE c.n > coalesce(r.n, 0)
ORDER BY x
""".strip()


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


def blocks_runs(scope: Scope) -> str:
    """Returns who holds the KV blocks, stacked from below, a row a change."""
    return f"""
WITH states AS (
  SELECT step, num_repeats, ts, {_BLOCKS}
  FROM kv_pressure
  WHERE {scope.where()} AND num_blocks_running IS NOT NULL
),
{_LAYERS.format(keep="step, num_repeats, ts")}
SELECT {x_of(scope)} AS x, series, y, y2
FROM layers
{_changes("y, y2")}
ORDER BY ts
LIMIT {MAX_POINTS + 1}
""".strip()


def blocks_stretches(scope: Scope, length_ns: int) -> str:
    """Returns the same, averaged over stretches."""
    return f"""
WITH blocks AS (
  SELECT ts, {_BLOCKS}
  FROM kv_pressure
  WHERE {scope.where()} AND num_blocks_running IS NOT NULL
),
states AS (
  SELECT {bin_of(scope, length_ns)} AS bin, avg(running) AS running, avg(waiting) AS waiting,
         avg(ended) AS ended, avg(cached) AS cached
  FROM blocks GROUP BY ALL
),
{_LAYERS.format(keep="bin")}
SELECT bin * {length_ns} / 1e6 AS x, series, y, y2 FROM layers ORDER BY bin
""".strip()


def need_runs(scope: Scope) -> str:
    """Returns free blocks and what the queue head needs, a row a change, with its end."""
    return f"""
WITH changes AS (
  SELECT ts, num_blocks_free AS free, head_blocks_needed AS need
  FROM kv_pressure
  WHERE {scope.where()} AND num_blocks_free IS NOT NULL
  WINDOW steps AS (ORDER BY step)
  QUALIFY row_number() OVER steps = 1
    OR step > lag(step + num_repeats) OVER steps
    OR (free, need) IS DISTINCT FROM lag((free, need)) OVER steps
)
SELECT {x_of(scope)} AS x, {x_of(scope, "lead(ts) OVER (ORDER BY ts)")} AS x2,
       free, need
FROM changes
ORDER BY ts
LIMIT {MAX_POINTS + 1}
""".strip()


def need_stretches(scope: Scope, length_ns: int) -> str:
    """Returns the fewest free blocks and the largest need of each stretch."""
    number = bin_of(scope, length_ns)
    return f"""
SELECT bin * {length_ns} / 1e6 AS x, (bin + 1) * {length_ns} / 1e6 AS x2, free, need
FROM (
  SELECT {number} AS bin, min(num_blocks_free) AS free, max(head_blocks_needed) AS need
  FROM kv_pressure
  WHERE {scope.where()} AND num_blocks_free IS NOT NULL
  GROUP BY ALL
)
ORDER BY x
""".strip()


MAX_SERIES = 8
"""Reasons that a waiting request is drawn for; the rest is drawn together, and named."""
REST = "other reasons"

_SERIES = """
heads AS (
  SELECT step, any_value(wait_reason) AS head
  FROM reasons WHERE wait_reason IN ({stops}) GROUP BY step
),
named AS (
  SELECT r.step, r.num_requests AS n,
         CASE WHEN r.wait_reason = 'behind_head' AND h.head IS NOT NULL
           THEN 'behind ' || h.head ELSE coalesce(r.wait_reason, 'not recorded') END AS series
  FROM reasons r LEFT JOIN heads h USING (step)
),
places AS (
  SELECT series, row_number() OVER (ORDER BY sum(n) DESC, series) AS place
  FROM named GROUP BY series
),
parts AS (
  SELECT n.step, CASE WHEN p.place <= {most} THEN n.series ELSE '{rest}' END AS series,
         sum(n.n)::BIGINT AS n
  FROM named n JOIN places p USING (series) GROUP BY ALL
),
known AS (SELECT DISTINCT series FROM parts)
""".strip()

_STOPS = ", ".join(f"'{reason.name}'" for reason in StopReason)


def waiting_runs(scope: Scope) -> str:
    """Returns running requests, then waiting ones by reason, stacked, a row a change.

    `behind X` are those behind a head that waits for X.
    """
    return f"""
WITH reasons AS (
  SELECT step, wait_reason, num_requests
  FROM queue_by_reason_between({scope.start_ts}, {scope.end_ts})
  WHERE engine = {scope.engine}
),
{_SERIES.format(stops=_STOPS, most=MAX_SERIES, rest=REST)},
steps_in AS (
  SELECT step, num_repeats, ts, num_running::BIGINT AS running
  FROM steps WHERE {scope.where()} AND num_running IS NOT NULL
),
stack AS (
  SELECT s.step, s.num_repeats, s.ts, k.series, s.running,
         coalesce(p.n, 0)::BIGINT AS n,
         sum(coalesce(p.n, 0)) OVER (PARTITION BY s.step ORDER BY {_order()})::BIGINT AS top
  FROM steps_in s CROSS JOIN known k
  LEFT JOIN parts p ON p.step = s.step AND p.series = k.series
),
layers AS (
  SELECT step, num_repeats, ts, 'running' AS series, 0 AS y, running AS y2 FROM steps_in
  UNION ALL
  SELECT step, num_repeats, ts, series, CASE WHEN n > 0 THEN running + top - n ELSE 0 END,
         CASE WHEN n > 0 THEN running + top ELSE 0 END
  FROM stack
)
SELECT {x_of(scope)} AS x, series, y, y2
FROM layers
{_changes("y, y2")}
ORDER BY ts
LIMIT {MAX_POINTS + 1}
""".strip()


def waiting_stretches(scope: Scope, length_ns: int) -> str:
    """Returns the same, averaged over stretches."""
    return f"""
WITH reasons AS (
  SELECT step, wait_reason, num_requests
  FROM queue_by_reason_between({scope.start_ts}, {scope.end_ts})
  WHERE engine = {scope.engine}
),
{_SERIES.format(stops=_STOPS, most=MAX_SERIES, rest=REST)},
bins AS (
  SELECT {bin_of(scope, length_ns)} AS bin, count(*) AS num_rows, avg(num_running) AS running
  FROM steps WHERE {scope.where()} AND num_running IS NOT NULL GROUP BY ALL
),
sums AS (
  SELECT {bin_of(scope, length_ns)} AS bin, p.series, sum(p.n) AS n
  FROM parts p JOIN steps s ON s.step = p.step
  WHERE {scope.where("s.ts")}
  GROUP BY ALL
),
stack AS (
  SELECT b.bin, k.series, b.running, coalesce(p.n, 0) / b.num_rows AS n,
         sum(coalesce(p.n, 0) / b.num_rows) OVER (PARTITION BY b.bin ORDER BY {_order()}) AS top
  FROM bins b CROSS JOIN known k
  LEFT JOIN sums p ON p.bin = b.bin AND p.series = k.series
)
SELECT bin * {length_ns} / 1e6 AS x, 'running' AS series, 0 AS y, running AS y2 FROM bins
UNION ALL
SELECT bin * {length_ns} / 1e6, series, running + top - n, running + top FROM stack
ORDER BY x
""".strip()


def _order() -> str:
    """Queue by reason lies above running in one order: a reason, those behind it, the rest."""
    return "replace(k.series, 'behind ', ''), k.series LIKE 'behind %'"


def _changes(state: str) -> str:
    return f"""WINDOW life AS (PARTITION BY series ORDER BY step)
QUALIFY row_number() OVER life = 1
  OR step > lag(step + num_repeats) OVER life
  OR ({state}) IS DISTINCT FROM lag(({state})) OVER life"""


def stop_runs(scope: Scope) -> str:
    """Returns stretches of steps whose admission ended for the same reason."""
    return f"""
WITH changes AS (
  SELECT ts, stop_reason
  FROM admission_stops
  WHERE {scope.where()}
  WINDOW steps AS (ORDER BY step)
  QUALIFY row_number() OVER steps = 1
    OR step > lag(step + num_repeats) OVER steps
    OR stop_reason IS DISTINCT FROM lag(stop_reason) OVER steps
)
SELECT {x_of(scope)} AS x, {x_of(scope, "lead(ts) OVER (ORDER BY ts)")} AS x2,
       stop_reason
FROM changes
ORDER BY ts
LIMIT {MAX_POINTS + 1}
""".strip()


def stop_shares(scope: Scope, length_ns: int) -> str:
    """Returns each reason's share of the steps of each stretch."""
    return f"""
SELECT bin * {length_ns} / 1e6 AS x, (bin + 1) * {length_ns} / 1e6 AS x2, stop_reason,
       n / sum(n) OVER (PARTITION BY bin) AS share
FROM (
  SELECT {bin_of(scope, length_ns)} AS bin, stop_reason, sum(num_repeats)::BIGINT AS n
  FROM admission_stops WHERE {scope.where()} GROUP BY ALL
)
ORDER BY x
""".strip()


def stop_totals(scope: Scope) -> str:
    """Returns how many steps ended their admission for each reason, most frequent first."""
    return f"""
SELECT stop_reason, sum(num_repeats)::BIGINT AS num_steps
FROM admission_stops
WHERE {scope.where()}
GROUP BY ALL ORDER BY num_steps DESC, stop_reason
""".strip()


def token_work(scope: Scope, length_ns: int) -> str:
    """Returns what the scheduled tokens of each bin were good for."""
    number = bin_of(scope, length_ns)
    return f"""
SELECT {number} * {length_ns} / 1e6 AS x,
       sum(num_useful_prefill_tokens + num_useful_decode_tokens)::BIGINT AS useful,
       sum(num_recomputed_tokens)::BIGINT AS recomputed,
       sum(num_rejected_draft_tokens)::BIGINT AS rejected,
       sum(num_padding_tokens)::BIGINT AS padding
FROM token_work
WHERE {scope.where()}
GROUP BY ALL ORDER BY x
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


def preempting_steps(scope: Scope) -> str:
    """Returns in how many steps somebody was preempted."""
    return f"""
SELECT count(*) FILTER (num_preempted > 0) AS num_steps FROM steps WHERE {scope.where()}
""".strip()
