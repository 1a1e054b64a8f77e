-- One row an engine, source, scrape and bucket of a histogram: how many observations fell into it
-- since the page before. vLLM observes a request's latencies when it ends, so one that is stuck is
-- in none.
--
--: engine [-, -] engine, as its target, rank or log tells it apart
--: source [-, -] kind of the source
--: ts [ns, -] when it was scraped
--: previous_ts [ns, -] the scrape before; NULL for the first
--: histogram [-, -] what is observed: ttft, inter_token_latency, e2e, queue_time, prefill_time,
--:   decode_time (in seconds), iteration_tokens, prompt_tokens, generation_tokens,
--:   request_preemptions
--: lower_bound [unit of the histogram, -] observations are above it; 0 in the first bucket
--: upper_bound [unit of the histogram, -] and up to it; infinity in the last bucket
--: num_observations [observations, -] observations since the scrape before; NULL for the first, and
--:   where the counter fell
--= SELECT count(DISTINCT histogram) AS num_histograms, sum(num_observations)::BIGINT AS num_observed
--= FROM metric_buckets
CREATE OR REPLACE MACRO metric_buckets_between(from_ns, until_ns) AS TABLE
WITH counted AS (
  SELECT
    s.engine,
    s.source,
    s.ts,
    n.canonical AS histogram,
    n.rank,
    try_cast(replace(json_extract_string(s.labels, '$.le'), '+', '') AS DOUBLE) AS upper_bound,
    sum(s.value) AS upto
  FROM samples s
  JOIN histogram_names() n ON n.metric = s.metric
  WHERE isfinite(s.value)
    -- An hour before, for the scrape before the first one.
    AND s.ts >= coalesce(from_ns, 3600000000000) - 3600000000000
    AND s.ts <= coalesce(until_ns, 9223372036854775807)
  GROUP BY ALL
),
cumulative AS (
  SELECT engine, source, ts, histogram, upper_bound, arg_min(upto, rank) AS upto
  FROM counted
  WHERE upper_bound IS NOT NULL
  GROUP BY engine, source, ts, histogram, upper_bound
),
risen AS (
  SELECT
    *,
    lag(ts) OVER bucket AS previous_ts,
    upto - lag(upto) OVER bucket AS more
  FROM cumulative
  WINDOW bucket AS (PARTITION BY engine, source, histogram, upper_bound ORDER BY ts)
),
kept AS (
  SELECT *, coalesce(min(more) OVER (PARTITION BY engine, source, ts, histogram) < 0, false) AS fell
  FROM risen
)
SELECT
  engine,
  source,
  ts,
  previous_ts,
  histogram,
  coalesce(lag(upper_bound) OVER page, 0) AS lower_bound,
  upper_bound,
  try_cast(
    round(CASE WHEN NOT fell THEN more - coalesce(lag(more) OVER page, 0) END) AS BIGINT
  ) AS num_observations
FROM kept
WHERE ts >= coalesce(from_ns, 0)
WINDOW page AS (PARTITION BY engine, source, ts, histogram ORDER BY upper_bound);
CREATE OR REPLACE VIEW metric_buckets AS
FROM metric_buckets_between(NULL, NULL);
