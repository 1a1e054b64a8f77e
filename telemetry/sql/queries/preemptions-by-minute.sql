-- One row a minute and cause in which requests lost their KV blocks.
--? When did preemptions happen, and why?
--: minute [UTC, -] beginning of the minute
--: cause [-, -] kv_full, priority or cache_reset
--: num_preemptions [preemptions, lower] preemptions
--: num_requests [requests, lower] different requests that were evicted
--: num_tokens_lost [tokens, lower] computed tokens that they lost
SELECT
  time_bucket(INTERVAL 1 MINUTE, ts_utc) AS minute,
  cause,
  count(*) AS num_preemptions,
  count(DISTINCT (engine, request)) AS num_requests,
  sum(num_computed_tokens_lost)::BIGINT AS num_tokens_lost
FROM preemptions
WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
GROUP BY ALL
ORDER BY minute, cause;
