-- One row an engine start, in order.
--? Which engines ran, and how did each of them end?
--: engine [-, -] engine start
--: started_utc [UTC, -] when it started; the first moment recorded where it did not say
--: lasted_s [s, -] to its end, or to the newest moment recorded
--: model [-, -] model that it served
--: end_kind [-, -] engine_stopped, engine_died or engine_failed; NULL where nothing says it ended
--: end_step [-, -] step in which it ended
--: num_steps [steps, -] steps recorded
--: num_unfinished [requests, lower] requests that came to it and never ended
WITH counts AS (
  SELECT engine, sum(num_repeats)::BIGINT AS num_steps FROM steps GROUP BY engine
),
open AS (
  SELECT engine, count(*) FILTER (WHERE NOT is_finished) AS num FROM requests GROUP BY engine
)
SELECT
  l.engine,
  utc(coalesce(d.started_ts, l.first_ts)) AS started_utc,
  round((coalesce(l.end_ts, l.newest_ts) - coalesce(d.started_ts, l.first_ts)) / 1e9, 1) AS lasted_s,
  d.model,
  l.end_kind,
  l.end_step,
  coalesce(c.num_steps, 0) AS num_steps,
  coalesce(o.num, 0) AS num_unfinished
FROM log_ends l
LEFT JOIN engines d ON d.engine = l.engine
LEFT JOIN counts c ON c.engine = l.engine
LEFT JOIN open o ON o.engine = l.engine
WHERE l.newest_ts >= $from_ns AND l.first_ts <= $until_ns AND l.engine = coalesce($engine, l.engine)
ORDER BY started_utc, l.engine;
