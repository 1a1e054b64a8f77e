-- One row a measure of latency, over the requests that ended in the window by themselves.
--? How fast was it for users?
--: measure [-, -] ttft (arrival to first token), itl (mean time between tokens of a request),
--:   longest pause (of a request), e2e (arrival to end)
--: num_requests [requests, -] requests that it is known of
--: p50_ms [ms, lower] median
--: p95_ms [ms, lower] 95 of 100 were at most so slow
--: p99_ms [ms, lower] 99 of 100
--: max_ms [ms, lower] the slowest
WITH ended AS (
  SELECT ttft_ns, mean_itl_ns, max_itl_ns, e2e_ns
  FROM requests
  WHERE finished_ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
    AND finish_reason IN ('stop', 'length')
),
measures AS (
  SELECT 1 AS place, 'ttft' AS measure, ttft_ns AS ns FROM ended
  UNION ALL SELECT 2, 'itl', mean_itl_ns FROM ended
  UNION ALL SELECT 3, 'longest pause', max_itl_ns FROM ended
  UNION ALL SELECT 4, 'e2e', e2e_ns FROM ended
)
SELECT
  measure,
  count(ns) AS num_requests,
  round(quantile_disc(ns, 0.5) / 1e6, 1) AS p50_ms,
  round(quantile_disc(ns, 0.95) / 1e6, 1) AS p95_ms,
  round(quantile_disc(ns, 0.99) / 1e6, 1) AS p99_ms,
  round(max(ns) / 1e6, 1) AS max_ms
FROM measures
GROUP BY place, measure
ORDER BY place;
