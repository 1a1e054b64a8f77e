"""The statements behind the page that says how far the record can be believed."""

from __future__ import annotations

from dashboard.queries.reduction import x_of
from diagnose.reading import Scope
from diagnose.scrapes.metric_facts import GAP
from telemetry.sources.prometheus.names import CANONICAL

MAX_STRETCHES = 500


def coverage(scope: Scope) -> str:
    """Returns what the steps of the window tell: how many, how many not, in how many gaps."""
    return f"""
SELECT coalesce(sum(num_repeats), 0)::BIGINT AS num_steps,
       coalesce(sum(num_missing), 0)::BIGINT AS num_missing,
       count(*) FILTER (num_missing > 0) AS num_gaps,
       max(num_missing) AS largest_gap,
       count(*) AS num_rows,
       {x_of(scope, "min(ts)")} AS x, {x_of(scope, "max(coalesce(updated_ts, ts))")} AS x2,
       median(num_running)::BIGINT AS usual_running,
       approx_quantile(updated_ts - ts, 0.5)::BIGINT AS usual_ns,
       (SELECT max(num_recorder_errors) FROM heartbeats
        WHERE engine = {scope.engine}) AS num_errors
FROM (
  SELECT ts, updated_ts, num_repeats, num_running,
         (step - lag(step + num_repeats) OVER (ORDER BY step))::BIGINT AS num_missing
  FROM steps
  WHERE {scope.where()}
)
""".strip()


def counters(engine: int) -> str:
    """Returns what was recorded, what the engine's own counter says, what was scraped last."""
    preempted, finished = (_scraped(engine, name) for name in ("num_preemptions", "num_finished"))
    of = f"engine = {engine}"
    return f"""
SELECT 'preemptions' AS counter,
       (SELECT count(*) FROM preemptions WHERE {of}) AS recorded,
       greatest((SELECT max(num_preemptions_total) FROM steps WHERE {of}),
                (SELECT max(num_preemptions) FROM heartbeats WHERE {of}))::BIGINT AS own,
       {preempted} AS scraped
UNION ALL
SELECT 'steps', (SELECT sum(num_repeats) FROM steps WHERE {of})::BIGINT,
       greatest((SELECT max(num_steps) FROM heartbeats WHERE {of}),
                (SELECT max(step + num_repeats) FROM steps WHERE {of}))::BIGINT,
       NULL
UNION ALL
SELECT 'requests ended', (SELECT count(*) FROM request_finishes WHERE {of}), NULL, {finished}
""".strip()


def _scraped(engine: int, canonical: str) -> str:
    """Returns SQL of a scraped counter's newest value: the sum of its series at the last scrape."""
    names = ", ".join(f"'{name}'" for name in CANONICAL[canonical])
    of = f"engine = {engine} AND source = 'prometheus' AND metric IN ({names})"
    return (
        f"(SELECT sum(value)::BIGINT FROM samples WHERE {of} "
        f"AND ts = (SELECT max(ts) FROM samples WHERE {of}))"
    )


def scrapes(scope: Scope) -> str:
    """Returns a row a source of samples: how many, how far apart, resets, gaps."""
    return f"""
WITH intervals AS (
  SELECT source, ts, interval_ns, is_reset
  FROM metric_intervals_between({scope.start_ts}, {scope.end_ts})
  WHERE engine = {scope.engine}
),
usual AS (SELECT source, median(interval_ns) AS usual_ns FROM intervals GROUP BY source)
SELECT i.source, count(*) AS num_scrapes,
       any_value(u.usual_ns)::BIGINT AS usual_ns, max(i.interval_ns)::BIGINT AS longest_ns,
       count(*) FILTER (i.interval_ns > {GAP} * u.usual_ns) AS num_gaps,
       count(*) FILTER (i.is_reset) AS num_resets
FROM intervals i JOIN usual u ON u.source = i.source
GROUP BY i.source ORDER BY num_scrapes DESC
""".strip()


def scrape_stretches(scope: Scope) -> str:
    """Returns stretches without a gap in the scrapes, of every source, longest first."""
    return f"""
WITH intervals AS (
  SELECT source, ts, interval_ns
  FROM metric_intervals_between({scope.start_ts}, {scope.end_ts})
  WHERE engine = {scope.engine}
),
usual AS (SELECT source, median(interval_ns) AS usual_ns FROM intervals GROUP BY source),
numbered AS (
  SELECT i.source, i.ts, u.usual_ns,
         count(*) FILTER (i.interval_ns > {GAP} * u.usual_ns)
           OVER (PARTITION BY i.source ORDER BY i.ts) AS stretch
  FROM intervals i JOIN usual u ON u.source = i.source
)
SELECT source, {x_of(scope, "min(ts)")} AS x, {x_of(scope, "max(ts)")} AS x2,
       count(*) AS num_scrapes
FROM numbered
GROUP BY source, stretch
ORDER BY x2 - x DESC
LIMIT {MAX_STRETCHES}
""".strip()


def resets(scope: Scope) -> str:
    """Returns when a counter fell, or another process answered."""
    return f"""
SELECT {x_of(scope)} AS x, 'counters reset' AS kind
FROM metric_intervals_between({scope.start_ts}, {scope.end_ts})
WHERE engine = {scope.engine} AND is_reset
ORDER BY ts
LIMIT 30
""".strip()
