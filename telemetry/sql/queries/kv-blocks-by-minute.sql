-- One row an engine and minute: KV blocks that entered and left its prefix cache, by its KV events.
--? How fast does the prefix cache turn over?
--: minute [UTC, -] beginning of the minute
--: engine [-, -] engine, as the address of its events tells it
--: num_stored_blocks [blocks, -] blocks that entered the cache
--: num_removed_blocks [blocks, lower] blocks that were thrown out of it
--: num_clears [events, lower] times that it was emptied
--: num_lost_messages [messages, lower] messages that never came: the counts are too low then
WITH told AS (
  SELECT
    *,
    batch::HUGEINT - lag(batch) OVER (PARTITION BY engine ORDER BY ts, batch, event_index) AS ahead
  FROM kv_events
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
)
SELECT
  time_bucket(INTERVAL 1 MINUTE, utc(ts)) AS minute,
  engine,
  coalesce(sum(num_blocks) FILTER (kind = 'stored'), 0)::BIGINT AS num_stored_blocks,
  coalesce(sum(num_blocks) FILTER (kind = 'removed'), 0)::BIGINT AS num_removed_blocks,
  count(*) FILTER (kind = 'cleared') AS num_clears,
  coalesce(sum(ahead - 1) FILTER (ahead > 1), 0)::BIGINT AS num_lost_messages
FROM told
GROUP BY minute, engine
ORDER BY minute, engine;
