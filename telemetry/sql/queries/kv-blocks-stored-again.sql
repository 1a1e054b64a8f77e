-- One row an engine: KV blocks that its prefix cache threw out and then took in again, by their hashes.
-- Their tokens were computed twice, or loaded. A cache that was emptied by a reset does not count.
--? How much reuse did evictions cost?
--: engine [-, -] engine, as the address of its events tells it
--: num_removed_blocks [blocks, lower] blocks that were thrown out
--: num_stored_again_blocks [blocks, lower] blocks that came back after that
--: num_stored_again_tokens [tokens, lower] their tokens
--: came_back_ratio [ratio, lower] part of the thrown out ones that came back
--: p50_away_ms [ms, -] half of them were away for no longer
WITH told AS (
  SELECT *, lag(batch) OVER (PARTITION BY engine ORDER BY ts, batch, event_index) AS previous_batch
  FROM kv_events
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
),
-- A cache that was emptied, and an engine that started anew, has no block of before.
lives AS (
  SELECT *, sum(CASE WHEN kind = 'cleared' OR batch < previous_batch THEN 1 ELSE 0 END) OVER (
    PARTITION BY engine ORDER BY ts, batch, event_index ROWS UNBOUNDED PRECEDING
  ) AS life
  FROM told
),
blocks AS (
  SELECT
    engine, ts, batch, event_index, kind, medium, group_index, block_size, life,
    unnest(string_split(block_hashes, ' ')) AS hash
  FROM lives
  WHERE kind IN ('stored', 'removed')
),
moves AS (
  SELECT *, lag(kind) OVER told AS previous_kind, ts - lag(ts) OVER told AS away_ns
  FROM blocks
  WINDOW told AS (
    PARTITION BY engine, life, medium, group_index, hash ORDER BY ts, batch, event_index
  )
)
SELECT
  engine,
  count(*) FILTER (kind = 'removed') AS num_removed_blocks,
  count(*) FILTER (kind = 'stored' AND previous_kind = 'removed') AS num_stored_again_blocks,
  coalesce(sum(block_size) FILTER (kind = 'stored' AND previous_kind = 'removed'), 0)::BIGINT
    AS num_stored_again_tokens,
  round(num_stored_again_blocks / nullif(num_removed_blocks, 0), 3) AS came_back_ratio,
  round(quantile_disc(away_ns, 0.5) FILTER (kind = 'stored' AND previous_kind = 'removed') / 1e6, 1)
    AS p50_away_ms
FROM moves
GROUP BY engine
ORDER BY engine;
