-- One row an engine: who held the KV blocks in the step in which fewest were free.
--? Who held the KV blocks when the pool was fullest?
--: engine [-, -] engine start
--: fullest_utc [UTC, -] when that step began
--: step [-, -] that step
--: num_blocks_pool [blocks, higher] KV blocks that there are
--: num_blocks_running [blocks, -] held by running requests
--: num_blocks_waiting [blocks, lower] held by requests that wait
--: num_blocks_kept [blocks, lower] held for requests that have ended, or until a step has ended
--: num_blocks_free [blocks, higher] free
--: num_blocks_short [blocks, lower] what the head of the queue lacked; NULL where it needed none
SELECT
  engine,
  utc(ts) AS fullest_utc,
  step,
  num_blocks_pool,
  num_blocks_running,
  num_blocks_waiting,
  coalesce(num_blocks_finished, 0) + coalesce(num_blocks_deferred_free, 0) AS num_blocks_kept,
  num_blocks_free,
  num_blocks_short
FROM kv_pressure
WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
QUALIFY row_number() OVER (PARTITION BY engine ORDER BY num_blocks_free, step) = 1
ORDER BY ts;
