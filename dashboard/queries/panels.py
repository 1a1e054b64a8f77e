"""The statements behind the seven panels of the overview.

A panel of states has two forms. `*_runs` gives a row a change of state (run-length encoded).
`*_stretches` cuts the window into equal stretches and averages, for windows with more changes than
can be drawn; where nothing happens after a stretch, the last state of it holds, not its average.
Both give the same columns. `since_ts` is the step before the window, whose state holds at its
beginning.
"""

from __future__ import annotations

from dashboard.queries.reduction import MAX_MARKS, MAX_RUNS, bin_of, x_of, x_of_bin
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


def _since(scope: Scope, since_ts: int | None) -> Scope:
    """Returns the window from the step before it on, whose state still holds when it begins."""
    start = scope.start_ts if since_ts is None else min(since_ts, scope.start_ts)
    return Scope(scope.engine, start, scope.end_ts)


def _first_x(scope: Scope) -> str:
    return f"greatest({x_of(scope)}, 0)"


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
    number = bin_of(length_ns)
    return f"""
SELECT {x_of_bin(scope, length_ns, number)} AS x, kind, count(*) AS n
FROM (
  SELECT ts, 'arrived' AS kind FROM request_arrivals WHERE {scope.where()}
  UNION ALL
  SELECT ts, 'finished' FROM request_finishes WHERE {scope.where()}
)
GROUP BY ALL ORDER BY x
""".strip()


def preemptions_per_bin(scope: Scope, length_ns: int) -> str:
    """Returns preemptions by cause in each bin; `unattributed` is what steps counted beyond."""
    number = bin_of(length_ns)
    return f"""
WITH causes AS (
  SELECT {number} AS bin, cause, count(*) AS n
  FROM preemptions WHERE {scope.where()} GROUP BY ALL
),
counted AS (
  SELECT {number} AS bin, sum(num_preempted)::BIGINT AS n
  FROM steps WHERE {scope.where()} GROUP BY ALL
)
SELECT {x_of_bin(scope, length_ns)} AS x, coalesce(cause, 'unattributed') AS cause, n FROM causes
UNION ALL
SELECT {x_of_bin(scope, length_ns, "c.bin")}, 'unattributed', c.n - coalesce(r.n, 0)
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


_QUIET_AFTER = "QUALIFY lead(bin) OVER (ORDER BY bin) IS DISTINCT FROM bin + 1"
"""Keeps the stretches that no other follows: their last state holds from there on."""


def blocks_runs(scope: Scope, since_ts: int | None = None) -> str:
    """Returns who holds the KV blocks, stacked from below, a row a change."""
    return f"""
WITH states AS (
  SELECT step, num_repeats, ts, {_BLOCKS}
  FROM kv_pressure
  WHERE {_since(scope, since_ts).where()} AND num_blocks_running IS NOT NULL
),
{_LAYERS.format(keep="step, num_repeats, ts")}
SELECT {_first_x(scope)} AS x, series, y, y2
FROM layers
{_changes("y, y2")}
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
  WHERE {_since(scope, since_ts).where()} AND num_blocks_running IS NOT NULL
),
stretches AS (
  SELECT {bin_of(length_ns)} AS bin, {means}, {lasts} FROM blocks GROUP BY ALL
),
states AS (
  SELECT bin, {", ".join(columns)} FROM stretches
  UNION ALL
  SELECT bin + 1, {", ".join(f"last_{name}" for name in columns)} FROM stretches {_QUIET_AFTER}
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
  WHERE {_since(scope, since_ts).where()} AND num_blocks_free IS NOT NULL
  WINDOW steps AS (ORDER BY step)
  QUALIFY row_number() OVER steps = 1
    OR step > lag(step + num_repeats) OVER steps
    OR (free, need) IS DISTINCT FROM lag((free, need)) OVER steps
)
SELECT {_first_x(scope)} AS x, {x_of(scope, "lead(ts) OVER (ORDER BY ts)")} AS x2,
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
  WHERE {_since(scope, since_ts).where()} AND num_blocks_free IS NOT NULL
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
  SELECT bin + 1, last_free, last_need FROM stretches {_QUIET_AFTER}
)
SELECT {x_of_bin(scope, length_ns)} AS x,
       {x_of_bin(scope, length_ns, "lead(bin) OVER (ORDER BY bin)")} AS x2, free, need
FROM states
ORDER BY bin
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


def waiting_runs(scope: Scope, since_ts: int | None = None) -> str:
    """Returns running requests, then waiting ones by reason, stacked, a row a change.

    `behind X` are those behind a head that waits for X.
    """
    return f"""
WITH reasons AS (
  SELECT step, wait_reason, num_requests
  FROM queue_by_reason_between({_since(scope, since_ts).start_ts}, {scope.end_ts})
  WHERE engine = {scope.engine}
),
{_SERIES.format(stops=_STOPS, most=MAX_SERIES, rest=REST)},
steps_in AS (
  SELECT step, num_repeats, ts, num_running::BIGINT AS running
  FROM steps WHERE {_since(scope, since_ts).where()} AND num_running IS NOT NULL
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
SELECT {_first_x(scope)} AS x, series, y, y2
FROM layers
{_changes("y, y2")}
ORDER BY ts
LIMIT {MAX_RUNS + 1}
""".strip()


def waiting_stretches(scope: Scope, length_ns: int, since_ts: int | None = None) -> str:
    """Returns the same, averaged over stretches."""
    since = _since(scope, since_ts)
    bin_ = f"greatest(ts, {scope.start_ts}) // {length_ns}"
    return f"""
WITH reasons AS (
  SELECT step, ts, wait_reason, num_requests AS n
  FROM queue_by_reason_between({since.start_ts}, {scope.end_ts})
  WHERE engine = {scope.engine}
),
heads AS (  -- a row a step, not a join: a day has millions of reasons
  SELECT step, any_value(ts) AS ts,
         any_value(wait_reason) FILTER (wait_reason <> 'behind_head') AS head,
         any_value(n) FILTER (wait_reason = 'behind_head') AS num_behind
  FROM reasons WHERE wait_reason IN ('behind_head', {_STOPS}) GROUP BY step
),
named AS (
  SELECT step, ts, coalesce(wait_reason, 'not recorded') AS series, n
  FROM reasons WHERE wait_reason IS DISTINCT FROM 'behind_head'
  UNION ALL
  SELECT step, ts, coalesce('behind ' || head, 'behind_head'), num_behind
  FROM heads WHERE num_behind IS NOT NULL
),
unknown AS (  -- steps that are in no average
  SELECT step FROM steps WHERE {since.where()} AND num_running IS NULL
),
sums AS (
  SELECT {bin_} AS bin, series, sum(n) AS n, sum(n) FILTER (u.step IS NULL) AS num_known
  FROM named LEFT JOIN unknown u USING (step) GROUP BY ALL
),
places AS (
  SELECT series, row_number() OVER (ORDER BY sum(n) DESC, series) AS place
  FROM sums GROUP BY series
),
drawn AS (
  SELECT series AS told, CASE WHEN place <= {MAX_SERIES} THEN series ELSE '{REST}' END AS series
  FROM places
),
known AS (SELECT DISTINCT series FROM drawn),
stretches AS (
  SELECT {bin_} AS bin, count(*) AS num_rows, avg(num_running) AS running,
         max(step) AS last_step, arg_max(num_running, step) AS last_running
  FROM steps WHERE {since.where()} AND num_running IS NOT NULL GROUP BY ALL
),
quiet AS (SELECT bin + 1 AS bin, last_step, last_running FROM stretches {_QUIET_AFTER}),
bins AS (
  SELECT bin, running FROM stretches UNION ALL SELECT bin, last_running FROM quiet
),
means AS (
  SELECT s.bin, d.series, sum(s.num_known) / any_value(t.num_rows) AS n
  FROM sums s JOIN drawn d ON d.told = s.series JOIN stretches t ON t.bin = s.bin
  GROUP BY ALL
  UNION ALL
  SELECT q.bin, d.series, sum(n.n)
  FROM quiet q JOIN named n ON n.step = q.last_step JOIN drawn d ON d.told = n.series
  GROUP BY ALL
),
stack AS (
  SELECT b.bin, k.series, b.running, coalesce(m.n, 0) AS n,
         sum(coalesce(m.n, 0)) OVER (PARTITION BY b.bin ORDER BY {_order()}) AS top
  FROM bins b CROSS JOIN known k
  LEFT JOIN means m ON m.bin = b.bin AND m.series = k.series
)
SELECT {x_of_bin(scope, length_ns)} AS x, 'running' AS series, 0 AS y, running AS y2 FROM bins
UNION ALL
SELECT {x_of_bin(scope, length_ns)}, series, running + top - n, running + top FROM stack
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


def stop_runs(scope: Scope, since_ts: int | None = None) -> str:
    """Returns stretches of steps whose admission ended for the same reason."""
    return f"""
WITH changes AS (
  SELECT ts, stop_reason
  FROM admission_stops
  WHERE {_since(scope, since_ts).where()}
  WINDOW steps AS (ORDER BY step)
  QUALIFY row_number() OVER steps = 1
    OR step > lag(step + num_repeats) OVER steps
    OR stop_reason IS DISTINCT FROM lag(stop_reason) OVER steps
)
SELECT {_first_x(scope)} AS x, {x_of(scope, "lead(ts) OVER (ORDER BY ts)")} AS x2,
       stop_reason
FROM changes
ORDER BY ts
LIMIT {MAX_RUNS + 1}
""".strip()


def stop_shares(scope: Scope, length_ns: int, since_ts: int | None = None) -> str:
    """Returns each reason's share of the steps of each stretch."""
    return f"""
WITH placed AS (
  SELECT step, num_repeats, stop_reason, greatest(ts, {scope.start_ts}) // {length_ns} AS bin
  FROM admission_stops WHERE {_since(scope, since_ts).where()}
),
stretches AS (SELECT bin, arg_max(stop_reason, step) AS last_reason FROM placed GROUP BY bin),
counts AS (
  SELECT bin, stop_reason, sum(num_repeats)::BIGINT AS n FROM placed GROUP BY ALL
  UNION ALL
  SELECT bin + 1, last_reason, 1 FROM stretches {_QUIET_AFTER}
),
ends AS (
  SELECT bin, lead(bin) OVER (ORDER BY bin) AS until FROM (SELECT DISTINCT bin FROM counts)
)
SELECT {x_of_bin(scope, length_ns)} AS x, {x_of_bin(scope, length_ns, "until")} AS x2,
       stop_reason, n / sum(n) OVER (PARTITION BY bin) AS share
FROM counts JOIN ends USING (bin)
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
    number = bin_of(length_ns)
    return f"""
SELECT {x_of_bin(scope, length_ns, number)} AS x,
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
