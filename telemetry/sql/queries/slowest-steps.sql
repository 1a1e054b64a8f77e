-- One row a step, the slowest first, with what its time went into.
--? Which steps were slowest, and what took the time?
--: engine [-, -] engine start
--: step [-, -] the step
--: at_utc [UTC, -] when it began
--: duration_ms [ms, lower] to the end of its update
--: schedule_ms [ms, lower] of this, deciding
--: forward_ms [ms, lower] of this, the model
--: num_scheduled_tokens [tokens, -] tokens scheduled
--: num_running [requests, -] requests that ran
--: num_preempted [requests, lower] requests that it evicted
SELECT
  engine,
  step,
  utc(ts) AS at_utc,
  round((updated_ts - ts) / 1e6, 1) AS duration_ms,
  round(schedule_ns / 1e6, 1) AS schedule_ms,
  round(forward_ns / 1e6, 1) AS forward_ms,
  num_scheduled_tokens,
  num_running,
  num_preempted
FROM steps
WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
  AND updated_ts IS NOT NULL
ORDER BY updated_ts - ts DESC, engine, step
LIMIT 10;
