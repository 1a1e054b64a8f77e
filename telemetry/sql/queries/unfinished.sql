-- One row a request that came and never ended, the oldest first: still running, stuck, or gone with
-- its engine.
--? Which requests never got an end, and what were they doing last?
--: engine [-, -] engine start
--: request_id [-, -] the request
--: arrived_utc [UTC, -] when it came
--: phase [-, -] what it was doing when the log ends
--: in_phase_ms [ms, lower] for how long
--: engine_end [-, -] how its engine ended; NULL while it runs
SELECT
  r.engine,
  r.request_id,
  r.ts_utc AS arrived_utc,
  i.phase,
  round(i.duration_ns / 1e6, 1) AS in_phase_ms,
  e.end_kind AS engine_end
FROM requests r
LEFT JOIN request_intervals i
  ON i.engine = r.engine AND i.request = r.request AND i.is_open AND i.phase <> 'load'
LEFT JOIN log_ends e ON e.engine = r.engine
WHERE r.ts BETWEEN $from_ns AND $until_ns AND r.engine = coalesce($engine, r.engine)
  AND NOT r.is_finished
ORDER BY r.ts, r.request
LIMIT 50;
