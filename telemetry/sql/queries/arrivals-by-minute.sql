-- One row a minute: what came and what went.
--? Did more come, or did it get longer?
--: minute [UTC, -] beginning of the minute
--: num_arrived [requests, -] requests that came
--: num_ended [requests, -] requests that ended
--: mean_prompt_tokens [tokens, -] prompt tokens of those that came, on average
--: mean_output_tokens [tokens, -] output tokens of those that ended, on average
WITH moves AS (
  SELECT ts, 1 AS arrived, 0 AS ended, num_prompt_tokens, NULL AS num_output_tokens
  FROM request_arrivals
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
  UNION ALL
  SELECT ts, 0, 1, NULL, num_output_tokens
  FROM request_finishes
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
)
SELECT
  time_bucket(INTERVAL 1 MINUTE, utc(ts)) AS minute,
  sum(arrived)::BIGINT AS num_arrived,
  sum(ended)::BIGINT AS num_ended,
  round(avg(num_prompt_tokens), 1) AS mean_prompt_tokens,
  round(avg(num_output_tokens), 1) AS mean_output_tokens
FROM moves
GROUP BY minute
ORDER BY minute;
