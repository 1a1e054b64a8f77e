-- One row a request, the one that waited longest for its first token first.
--? Who waited longest for a first token, and where did the time go?
--: engine [-, -] engine start
--: request_id [-, -] the request
--: ttft_ms [ms, lower] arrival to first token
--: queue_ms [ms, lower] of this, until it was admitted
--: prefill_ms [ms, lower] of this, from there on
--: load_ms [ms, lower] waiting for KV loads, in all its life
--: num_prompt_tokens [tokens, -] prompt tokens
SELECT
  engine,
  request_id,
  round(ttft_ns / 1e6, 1) AS ttft_ms,
  round(queue_ns / 1e6, 1) AS queue_ms,
  round(prefill_ns / 1e6, 1) AS prefill_ms,
  round(load_ns / 1e6, 1) AS load_ms,
  num_prompt_tokens
FROM requests
WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
  AND ttft_ns IS NOT NULL
ORDER BY ttft_ns DESC, engine, request
LIMIT 10;
