-- One row an engine: whether its record can be believed. Zeroes are good.
--? Is anything missing from the record?
--: engine [-, -] engine start
--: num_dropped_rows [rows, lower] rows that were overwritten before they were read
--: num_unattributed [preemptions, lower] preemptions that the scheduler counted and no row tells of
--: num_missing_steps [steps, lower] steps between the first and the last that no row tells of
--: num_recorder_errors [errors, lower] errors that the recorder swallowed; NULL without a heartbeat
WITH told AS (
  SELECT
    engine,
    max(num_preemptions_total)::BIGINT AS counted,
    (max(step + num_repeats) - min(step) - sum(num_repeats))::BIGINT AS num_missing_steps
  FROM steps WHERE engine = coalesce($engine, engine) GROUP BY engine
),
dropped AS (
  SELECT engine, sum(last_lost - first_lost + 1)::BIGINT AS num
  FROM request_events WHERE kind = event_kind('records_dropped') GROUP BY engine
),
recorded AS (
  SELECT engine, count(*) AS num FROM preemptions GROUP BY engine
),
errors AS (
  SELECT engine, max(num_recorder_errors) AS num FROM heartbeats GROUP BY engine
)
SELECT
  t.engine,
  coalesce(d.num, 0) AS num_dropped_rows,
  greatest(t.counted - coalesce(r.num, 0), 0) AS num_unattributed,
  t.num_missing_steps,
  e.num AS num_recorder_errors
FROM told t
LEFT JOIN dropped d ON d.engine = t.engine
LEFT JOIN recorded r ON r.engine = t.engine
LEFT JOIN errors e ON e.engine = t.engine
ORDER BY t.engine;
