-- One row an engine, source and minute: what scrapes, or the lines of a log, said. Increases of
-- intervals that end in the minute; NULL is not measured, never 0.
--? What did the scrapes say, minute by minute?
--: engine [-, -] engine, as its target, rank or log tells it apart
--: source [-, -] prometheus or vllm-log
--: minute [UTC, -] minute
--: num_scrapes [scrapes, -] scrapes or lines in it
--: most_running [requests, -] most requests running
--: most_waiting [requests, lower] most requests waiting
--: most_deferred [requests, lower] most of them set aside
--: most_kv_used_ratio [ratio, -] highest KV usage
--: num_generation_tokens [tokens, higher] output tokens
--: num_preemptions [preemptions, lower] preemptions that were counted
--: num_finished [requests, higher] requests that ended
--: num_resets [intervals, lower] intervals that are left out: a counter fell
SELECT
  engine,
  source,
  date_trunc('minute', ts_utc) AS minute,
  count(*) AS num_scrapes,
  max(num_running) AS most_running,
  max(num_waiting) AS most_waiting,
  max(num_waiting_deferred) AS most_deferred,
  max(kv_cache_usage_ratio) AS most_kv_used_ratio,
  sum(num_generation_tokens)::BIGINT AS num_generation_tokens,
  sum(num_preemptions)::BIGINT AS num_preemptions,
  sum(num_finished)::BIGINT AS num_finished,
  count(*) FILTER (is_reset) AS num_resets
FROM metric_intervals
WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
GROUP BY ALL
ORDER BY minute, engine, source;
