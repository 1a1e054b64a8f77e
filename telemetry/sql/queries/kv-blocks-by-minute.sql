-- One row an engine and minute: KV blocks that entered and left its prefix cache, by its KV events.
-- vLLM tells a hit as stored once more; where hashes were told, such blocks are counted apart.
--? How fast does the prefix cache turn over?
--: minute [UTC, -] beginning of the minute
--: engine [-, -] engine, as the address of its events tells it
--: num_stored_blocks [blocks, -] blocks that entered the cache
--: num_told_again_blocks [blocks, higher] blocks told as stored that were there: hits, or copies
--: num_removed_blocks [blocks, lower] blocks that were thrown out of it
--: num_clears [events, lower] times that it was emptied
--: num_lost_messages [messages, lower] messages that never came: the counts are too low then
WITH told AS (
  SELECT *, batch::HUGEINT - lag(batch) OVER in_order AS ahead
  FROM kv_events
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
  WINDOW in_order AS (PARTITION BY engine ORDER BY ts, batch, event_index)
),
-- A cache that was emptied, and an engine that started anew, has no block of before.
lives AS (
  SELECT *, sum(CASE WHEN kind = 'cleared' OR ahead < 0 THEN 1 ELSE 0 END) OVER (
    PARTITION BY engine ORDER BY ts, batch, event_index ROWS UNBOUNDED PRECEDING
  ) AS life
  FROM told
),
blocks AS (
  SELECT
    engine, ts, batch, event_index, kind, medium, group_index, life,
    unnest(string_split(block_hashes, ' ')) AS hash
  FROM lives
  WHERE kind IN ('stored', 'removed')
),
known AS (
  SELECT engine, ts, kind, lag(kind) OVER (
    PARTITION BY engine, life, medium, group_index, hash ORDER BY ts, batch, event_index
  ) AS previous_kind
  FROM blocks
),
again AS (
  SELECT engine, time_bucket(INTERVAL 1 MINUTE, utc(ts)) AS minute, count(*) AS num_blocks
  FROM known
  WHERE kind = 'stored' AND previous_kind = 'stored'
  GROUP BY ALL
),
sums AS (
  SELECT
    time_bucket(INTERVAL 1 MINUTE, utc(ts)) AS minute,
    engine,
    coalesce(sum(num_blocks) FILTER (kind = 'stored'), 0)::BIGINT AS num_stored_blocks,
    coalesce(sum(num_blocks) FILTER (kind = 'removed'), 0)::BIGINT AS num_removed_blocks,
    count(*) FILTER (kind = 'cleared') AS num_clears,
    coalesce(sum(ahead - 1) FILTER (ahead > 1), 0)::BIGINT AS num_lost_messages
  FROM told
  GROUP BY ALL
)
SELECT
  s.minute,
  s.engine,
  s.num_stored_blocks - coalesce(a.num_blocks, 0) AS num_stored_blocks,
  coalesce(a.num_blocks, 0) AS num_told_again_blocks,
  s.num_removed_blocks,
  s.num_clears,
  s.num_lost_messages
FROM sums s
LEFT JOIN again a ON a.engine = s.engine AND a.minute = s.minute
ORDER BY s.minute, s.engine;
