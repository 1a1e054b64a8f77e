-- One row an engine and histogram: between which bounds the 95th percentile of the window lies. A
-- bucket tells no more than that.
--? How slow was it, as far as the scrapes' histograms tell?
--: engine [-, -] engine, as its target, rank or log tells it apart
--: histogram [-, -] what is observed, in seconds
--: num_observations [observations, -] observations in the window
--: p95_above [s, lower] the 95th percentile is more than this
--: p95_upto [s, lower] and at most this; infinity where the last bucket holds it
WITH buckets AS (
  SELECT engine, histogram, lower_bound, upper_bound, sum(num_observations) AS n
  FROM metric_buckets
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
    AND histogram IN (
      'ttft', 'inter_token_latency', 'e2e', 'queue_time', 'prefill_time', 'decode_time'
    )
  GROUP BY ALL
),
upto AS (
  SELECT
    *,
    sum(n) OVER (PARTITION BY engine, histogram ORDER BY upper_bound) AS so_far,
    sum(n) OVER (PARTITION BY engine, histogram) AS n_all
  FROM buckets
)
SELECT
  engine,
  histogram,
  any_value(n_all)::BIGINT AS num_observations,
  min_by(lower_bound, upper_bound) AS p95_above,
  min(upper_bound) AS p95_upto
FROM upto
WHERE so_far >= 0.95 * n_all AND n_all > 0
GROUP BY engine, histogram
ORDER BY engine, histogram;
