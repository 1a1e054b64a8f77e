-- One row a step: who holds the KV blocks after it was scheduled, and what the head of the queue
-- still lacked. Blocks that two requests share count once.
--
--: engine [-, -] engine start, 64 random bits
--: step [-, -] step, counted per engine start
--: ts [ns, -] when the step began
--: ts_utc [UTC, -] the same, for reading
--: num_repeats [steps, -] equal steps told in this row
--: num_blocks_pool [blocks, higher] KV blocks that can be handed out; NULL where the engine did
--:   not say
--: num_blocks_free [blocks, higher] free KV blocks: unhashed and cached
--: num_blocks_free_unhashed [blocks, -] free KV blocks with nothing in them
--: num_blocks_free_cached [blocks, higher] free KV blocks that a prefix can still hit
--: num_blocks_running [blocks, -] KV blocks of running requests
--: num_blocks_waiting [blocks, lower] KV blocks of waiting requests
--: num_blocks_finished [blocks, lower] KV blocks kept for requests that have ended
--: num_blocks_deferred_free [blocks, lower] KV blocks whose release waits for a step
--: num_blocks_given_up [blocks, lower] KV blocks that a load given up may still write into
--: usage_ratio [ratio, -] part of the pool that is not free
--: head_request [-, -] head of the queue when admission ended; NULL where nobody waited
--: head_blocks_needed [blocks, -] KV blocks that the head needed; NULL where blocks were not what
--:   stopped it
--: num_blocks_short [blocks, lower] what the free blocks lacked of that; 0 where they sufficed,
--:   NULL without a need
--= SELECT engine, max(usage_ratio) AS highest_usage_ratio, max(num_blocks_short) AS most_blocks_short
--= FROM kv_pressure GROUP BY engine ORDER BY highest_usage_ratio DESC, engine
CREATE OR REPLACE VIEW kv_pressure AS
WITH pools AS (
  SELECT engine, max(num_usable_blocks)::BIGINT AS num_blocks_pool FROM engines GROUP BY engine
),
blocks AS (
  SELECT *, num_blocks_free_unhashed::BIGINT + num_blocks_free_cached::BIGINT AS num_blocks_free
  FROM steps
)
SELECT
  b.engine,
  b.step,
  b.ts,
  utc(b.ts) AS ts_utc,
  b.num_repeats,
  p.num_blocks_pool,
  b.num_blocks_free,
  b.num_blocks_free_unhashed,
  b.num_blocks_free_cached,
  b.num_blocks_running,
  b.num_blocks_waiting,
  b.num_blocks_finished,
  b.num_blocks_deferred_free,
  b.num_blocks_given_up,
  1 - b.num_blocks_free / p.num_blocks_pool AS usage_ratio,
  b.head_request,
  b.head_blocks_needed,
  CASE
    WHEN b.head_blocks_needed IS NOT NULL
      THEN greatest(b.head_blocks_needed::BIGINT - b.num_blocks_free, 0)
  END AS num_blocks_short
FROM blocks b
LEFT JOIN pools p ON p.engine = b.engine;
