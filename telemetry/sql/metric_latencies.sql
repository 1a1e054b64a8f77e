-- One row an engine, source, scrape, histogram and percentile: what the requests that ended since
-- the page before had seen, as far as buckets tell. The truth lies anywhere between the two bounds;
-- the estimate in the middle is no measurement. A stuck request is in none of it.
--
--: engine [-, -] engine, as its target, rank or log tells it apart
--: source [-, -] kind of the source
--: ts [ns, -] when it was scraped
--: ts_utc [UTC, -] the same, for reading
--: previous_ts [ns, -] the scrape before
--: histogram [-, -] ttft, inter_token_latency, e2e, queue_time (before the first admission only),
--:   prefill_time or decode_time
--: percentile [%, -] 50, 95 or 99
--: num_observations [observations, -] observations since the scrape before
--: estimate_ns [ns, lower] as if the observations of a bucket lay evenly in it; NULL in the last
--:   bucket, which has no end
--: low_ns [ns, lower] it is more than this
--: high_ns [ns, lower] it is at most this; NULL in the last bucket
--= SELECT count(*) AS num_rows, max(low_ns) FILTER (percentile = 99) AS highest_low_ns
--= FROM metric_latencies WHERE histogram = 'ttft'
CREATE OR REPLACE VIEW metric_latencies AS
WITH buckets AS (
  SELECT
    engine,
    source,
    ts,
    previous_ts,
    histogram,
    lower_bound,
    upper_bound,
    num_observations,
    sum(num_observations) OVER page - num_observations AS num_below,
    sum(num_observations) OVER (PARTITION BY engine, source, ts, histogram) AS num_all
  FROM metric_buckets
  WHERE histogram IN (
    'ttft', 'inter_token_latency', 'e2e', 'queue_time', 'prefill_time', 'decode_time'
  )
  WINDOW page AS (PARTITION BY engine, source, ts, histogram ORDER BY upper_bound)
),
placed AS (
  SELECT
    b.*,
    p.percentile,
    p.percentile * num_all / 100 AS wanted
  FROM buckets b
  CROSS JOIN (VALUES (50), (95), (99)) p(percentile)
  WHERE num_observations > 0
)
SELECT
  engine,
  source,
  ts,
  utc(ts) AS ts_utc,
  previous_ts,
  histogram,
  percentile,
  num_all::BIGINT AS num_observations,
  CASE
    WHEN isfinite(upper_bound) THEN try_cast(
      1e9 * (
        lower_bound + (upper_bound - lower_bound) * (wanted - num_below) / num_observations
      ) AS BIGINT
    )
  END AS estimate_ns,
  try_cast(1e9 * lower_bound AS BIGINT) AS low_ns,
  CASE WHEN isfinite(upper_bound) THEN try_cast(1e9 * upper_bound AS BIGINT) END AS high_ns
FROM placed
WHERE num_below < wanted AND wanted <= num_below + num_observations;
