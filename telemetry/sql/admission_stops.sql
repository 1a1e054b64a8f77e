-- One row a step whose admission scan ended for a recorded reason: what ended it, and how far the
-- head of the queue was from being admitted.
--
--: engine [-, -] engine start, 64 random bits
--: step [-, -] step, counted per engine start
--: ts [ns, -] when the step began
--: ts_utc [UTC, -] the same, for reading
--: num_repeats [steps, -] equal steps told in this row
--: stop_reason [-, -] why admission ended (StopReason)
--: head_request [-, -] head of the queue when admission ended; NULL where nobody waited
--: head_blocks_needed [blocks, -] KV blocks that the head needed
--: min_follower_blocks_needed [blocks, -] least KV blocks that any of the next 16 needs
--: num_blocks_free [blocks, higher] free KV blocks after the step was scheduled, cached ones too
--: num_running [requests, -] running requests after schedule()
--: num_waiting [requests, lower] waiting requests after schedule()
--= SELECT stop_reason, sum(num_repeats) AS num_steps
--= FROM admission_stops GROUP BY stop_reason ORDER BY num_steps DESC, stop_reason
CREATE OR REPLACE VIEW admission_stops AS
SELECT
  engine,
  step,
  ts,
  utc(ts) AS ts_utc,
  num_repeats,
  stop_reason_name(stop_reason) AS stop_reason,
  head_request,
  head_blocks_needed,
  min_follower_blocks_needed,
  num_blocks_free_unhashed::BIGINT + num_blocks_free_cached::BIGINT AS num_blocks_free,
  num_running,
  num_waiting
FROM steps
WHERE steps.stop_reason IS NOT NULL;
