-- One row a stretch in which requests waited and none was let in, the longest first.
--? How long was the door shut, and by what?
--: engine [-, -] engine start
--: from_utc [UTC, -] when its first step began
--: duration_ms [ms, lower] up to the next step that let somebody in, or that nobody waited in
--: num_steps [steps, lower] steps
--: most_waiting [requests, lower] requests that waited at most
--: mostly [-, -] the stop reason of most of these steps
WITH marked AS (
  SELECT
    engine, step, ts, num_repeats, num_waiting, stop_reason,
    num_admitted + num_resumed > 0 OR num_waiting = 0 AS is_open,
    lead(ts, 1, coalesce(updated_ts, ts)) OVER (PARTITION BY engine ORDER BY step) AS next_ts
  FROM steps
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
),
numbered AS (
  SELECT *, count(*) FILTER (WHERE is_open) OVER (PARTITION BY engine ORDER BY step) AS stretch
  FROM marked
)
SELECT
  engine,
  utc(min(ts)) AS from_utc,
  round((max(next_ts) - min(ts)) / 1e6, 1) AS duration_ms,
  sum(num_repeats)::BIGINT AS num_steps,
  max(num_waiting) AS most_waiting,
  stop_reason_name(mode(stop_reason)) AS mostly
FROM numbered
WHERE NOT is_open
GROUP BY engine, stretch
ORDER BY duration_ms DESC, from_utc
LIMIT 10;
