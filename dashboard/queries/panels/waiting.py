"""Requests that run, and those that wait, by reason."""

from __future__ import annotations

from dashboard.queries.panels.states import QUIET_AFTER, changes, first_x, since_step
from dashboard.queries.reduction import MAX_RUNS, x_of_bin
from diagnose.reading import Scope
from telemetry.vocabulary import StopReason

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
  FROM queue_by_reason_between({since_step(scope, since_ts).start_ts}, {scope.end_ts})
  WHERE engine = {scope.engine}
),
{_SERIES.format(stops=_STOPS, most=MAX_SERIES, rest=REST)},
steps_in AS (
  SELECT step, num_repeats, ts, num_running::BIGINT AS running
  FROM steps WHERE {since_step(scope, since_ts).where()} AND num_running IS NOT NULL
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
SELECT {first_x(scope)} AS x, series, y, y2
FROM layers
{changes("y, y2")}
ORDER BY ts
LIMIT {MAX_RUNS + 1}
""".strip()


def waiting_stretches(scope: Scope, length_ns: int, since_ts: int | None = None) -> str:
    """Returns the same, averaged over stretches."""
    since = since_step(scope, since_ts)
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
quiet AS (SELECT bin + 1 AS bin, last_step, last_running FROM stretches {QUIET_AFTER}),
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
