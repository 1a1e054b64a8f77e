-- One row an engine, source and scrape: what the page said, under one name whatever the source
-- spelled, and by how much its counters rose since the page before. `samples` has the pages as they
-- were. A log's lines are rows of their own source: never add rows of two sources.
--
--: engine [-, -] engine, as its target, rank or log tells it apart; it stays over restarts
--: source [-, -] prometheus or vllm-log
--: ts [ns, -] when it was scraped, or when the line was written
--: ts_utc [UTC, -] the same, for reading
--: previous_ts [ns, -] the scrape before; NULL for the first
--: interval_ns [ns, -] time between the two; NULL for the first
--: num_running [requests, -] requests running
--: num_waiting [requests, lower] requests waiting
--: num_waiting_capacity [requests, lower] of these, waiting for slots, blocks or token budget
--: num_waiting_deferred [requests, lower] of these, set aside: for an adapter, remote KV, a grammar
--:   or an encoder, which no scrape tells apart
--: num_kv_loads_in_progress [requests, lower] of these, their KV load has begun
--: num_kv_loads_completed [requests, lower] of these, their KV load is done and holds its blocks
--: kv_cache_usage_ratio [ratio, -] KV blocks in use, of all
--: num_prompt_tokens [tokens, -] prompt tokens since the scrape before; recomputed ones are not in
--:   it. Of a log's lines: their rate, times the usual distance of lines
--: num_generation_tokens [tokens, higher] output tokens since the scrape before; of lines likewise
--: num_preemptions [preemptions, lower] preemptions that were counted: vLLM counts a victim with its
--:   next output, so the count comes late
--: num_finished [requests, higher] requests that ended
--: num_prefix_queries [tokens, -] tokens that were looked for in the prefix cache
--: num_prefix_hits [tokens, higher] of these, found
--: num_drafted_tokens [tokens, -] tokens that were guessed
--: num_accepted_tokens [tokens, higher] of these, right
--: num_failed_transfers [loads, lower] KV transfers that failed
--: num_expired_requests [requests, lower] requests whose KV was let go before it was fetched
--: num_prompt_tokens_total [tokens, -] the counter itself, since the process began
--: num_generation_tokens_total [tokens, -] the counter itself, since the process began
--: num_preemptions_total [preemptions, lower] the counter itself, since the process began
--: is_reset [-, -] whether a counter fell or another process answered: then no increase is known
--= SELECT max(num_running) AS most_running, max(kv_cache_usage_ratio) AS most_used,
--=   sum(num_preemptions)::BIGINT AS num_preemptions
--= FROM metric_intervals
CREATE OR REPLACE MACRO counter_rise(more, was_reset, rate, covered_ns) AS
  try_cast(
    round(CASE WHEN NOT was_reset THEN coalesce(more, rate * covered_ns / 1e9) END) AS BIGINT
  );
CREATE OR REPLACE MACRO metric_intervals_between(from_ns, until_ns) AS TABLE
WITH spelled AS (
  SELECT
    s.engine,
    s.source,
    s.ts,
    n.canonical,
    n.kind,
    n.rank,
    CASE
      WHEN n.canonical IN ('kv_cache_usage_ratio', 'process_started') THEN max(s.value)
      ELSE sum(s.value)
    END AS value
  FROM samples s
  JOIN metric_names() n ON n.metric = s.metric
  WHERE isfinite(s.value)
    -- An hour before, for the scrape before the first one.
    AND s.ts >= coalesce(from_ns, 3600000000000) - 3600000000000
    AND s.ts <= coalesce(until_ns, 9223372036854775807)
    AND (n.label IS NULL OR json_extract_string(s.labels, '$.' || n.label) = n.label_value)
  GROUP BY s.engine, s.source, s.ts, n.canonical, n.kind, n.rank
),
told AS (
  SELECT engine, source, ts, canonical, kind, arg_min(value, rank) AS value
  FROM spelled
  GROUP BY engine, source, ts, canonical, kind
),
scrapes AS (
  SELECT
    engine,
    source,
    ts,
    lag(ts) OVER scrape AS previous_ts,
    max(value) FILTER (canonical = 'num_running') AS running,
    max(value) FILTER (canonical = 'num_waiting') AS waiting,
    max(value) FILTER (canonical = 'num_waiting_capacity') AS capacity,
    max(value) FILTER (canonical = 'num_waiting_deferred') AS deferred,
    max(value) FILTER (canonical = 'num_kv_loads_in_progress') AS loading,
    max(value) FILTER (canonical = 'num_kv_loads_completed') AS loaded,
    max(value) FILTER (canonical = 'kv_cache_usage_ratio') AS usage,
    max(value) FILTER (canonical = 'process_started') AS started,
    max(value) FILTER (canonical = 'num_prompt_tokens' AND kind = 'counter') AS prompts,
    max(value) FILTER (canonical = 'num_prompt_tokens' AND kind = 'rate') AS prompt_rate,
    max(value) FILTER (canonical = 'num_generation_tokens' AND kind = 'counter') AS outputs,
    max(value) FILTER (canonical = 'num_generation_tokens' AND kind = 'rate') AS output_rate,
    max(value) FILTER (canonical = 'num_preemptions' AND kind = 'counter') AS preempted,
    max(value) FILTER (canonical = 'num_preemptions' AND kind = 'count') AS preempted_since,
    max(value) FILTER (canonical = 'num_finished') AS finished,
    max(value) FILTER (canonical = 'num_prefix_queries') AS queries,
    max(value) FILTER (canonical = 'num_prefix_hits') AS hits,
    max(value) FILTER (canonical = 'num_drafted_tokens' AND kind = 'counter') AS drafted,
    max(value) FILTER (canonical = 'num_drafted_tokens' AND kind = 'count') AS drafted_since,
    max(value) FILTER (canonical = 'num_accepted_tokens' AND kind = 'counter') AS accepted,
    max(value) FILTER (canonical = 'num_accepted_tokens' AND kind = 'count') AS accepted_since,
    max(value) FILTER (canonical = 'num_failed_transfers' AND kind = 'counter') AS failed,
    max(value) FILTER (canonical = 'num_failed_transfers' AND kind = 'count') AS failed_since,
    max(value) FILTER (canonical = 'num_expired_requests') AS expired
  FROM told
  GROUP BY engine, source, ts
  WINDOW scrape AS (PARTITION BY engine, source ORDER BY ts)
),
compared AS (
  SELECT
    *,
    coalesce(started <> lag(started) OVER scrape, false)
      OR coalesce(prompts < lag(prompts) OVER scrape, false)
      OR coalesce(outputs < lag(outputs) OVER scrape, false)
      OR coalesce(preempted < lag(preempted) OVER scrape, false)
      OR coalesce(finished < lag(finished) OVER scrape, false)
      OR coalesce(queries < lag(queries) OVER scrape, false)
      OR coalesce(hits < lag(hits) OVER scrape, false)
      OR coalesce(drafted < lag(drafted) OVER scrape, false)
      OR coalesce(accepted < lag(accepted) OVER scrape, false)
      OR coalesce(failed < lag(failed) OVER scrape, false)
      OR coalesce(expired < lag(expired) OVER scrape, false) AS is_reset,
    prompts - lag(prompts) OVER scrape AS more_prompts,
    outputs - lag(outputs) OVER scrape AS more_outputs,
    preempted - lag(preempted) OVER scrape AS more_preempted,
    finished - lag(finished) OVER scrape AS more_finished,
    queries - lag(queries) OVER scrape AS more_queries,
    hits - lag(hits) OVER scrape AS more_hits,
    drafted - lag(drafted) OVER scrape AS more_drafted,
    accepted - lag(accepted) OVER scrape AS more_accepted,
    failed - lag(failed) OVER scrape AS more_failed,
    expired - lag(expired) OVER scrape AS more_expired,
    median(ts - previous_ts) OVER (PARTITION BY engine, source) AS usual_ns
  FROM scrapes
  WINDOW scrape AS (PARTITION BY engine, source ORDER BY ts)
),
covered AS (
  SELECT
    *,
    CASE WHEN previous_ts IS NOT NULL THEN least(ts - previous_ts, usual_ns) END AS covered_ns
  FROM compared
)
SELECT
  engine,
  source,
  ts,
  utc(ts) AS ts_utc,
  previous_ts,
  ts - previous_ts AS interval_ns,
  try_cast(round(running) AS BIGINT) AS num_running,
  try_cast(round(waiting) AS BIGINT) AS num_waiting,
  try_cast(round(capacity) AS BIGINT) AS num_waiting_capacity,
  try_cast(round(deferred) AS BIGINT) AS num_waiting_deferred,
  try_cast(round(loading) AS BIGINT) AS num_kv_loads_in_progress,
  try_cast(round(loaded) AS BIGINT) AS num_kv_loads_completed,
  usage AS kv_cache_usage_ratio,
  counter_rise(more_prompts, is_reset, prompt_rate, covered_ns) AS num_prompt_tokens,
  counter_rise(more_outputs, is_reset, output_rate, covered_ns) AS num_generation_tokens,
  counter_rise(coalesce(more_preempted, preempted_since), is_reset, NULL, NULL) AS num_preemptions,
  counter_rise(more_finished, is_reset, NULL, NULL) AS num_finished,
  counter_rise(more_queries, is_reset, NULL, NULL) AS num_prefix_queries,
  counter_rise(more_hits, is_reset, NULL, NULL) AS num_prefix_hits,
  counter_rise(coalesce(more_drafted, drafted_since), is_reset, NULL, NULL) AS num_drafted_tokens,
  counter_rise(coalesce(more_accepted, accepted_since), is_reset, NULL, NULL) AS num_accepted_tokens,
  counter_rise(coalesce(more_failed, failed_since), is_reset, NULL, NULL) AS num_failed_transfers,
  counter_rise(more_expired, is_reset, NULL, NULL) AS num_expired_requests,
  try_cast(round(prompts) AS BIGINT) AS num_prompt_tokens_total,
  try_cast(round(outputs) AS BIGINT) AS num_generation_tokens_total,
  try_cast(round(preempted) AS BIGINT) AS num_preemptions_total,
  is_reset
FROM covered
WHERE ts >= coalesce(from_ns, 0);
CREATE OR REPLACE VIEW metric_intervals AS
FROM metric_intervals_between(NULL, NULL);
