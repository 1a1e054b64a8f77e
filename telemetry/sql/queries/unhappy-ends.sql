-- One row a way in which requests ended that is neither a stop nor the length.
--? Which requests ended badly, and with what words?
--: finish_reason [-, -] how they ended (FinishReason)
--: num_requests [requests, lower] requests
--: num_output_tokens [tokens, -] output tokens that were computed for them all the same
--: request_ids [-, -] the first five of them
--: error_text [-, -] what the engine said of one of them
SELECT
  finish_reason,
  count(*) AS num_requests,
  sum(num_output_tokens)::BIGINT AS num_output_tokens,
  list(request_id ORDER BY finished_ts, request)[:5] AS request_ids,
  any_value(error_text ORDER BY finished_ts) AS error_text
FROM requests
WHERE finished_ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
  AND finish_reason NOT IN ('stop', 'length')
GROUP BY finish_reason
ORDER BY num_requests DESC, finish_reason;
