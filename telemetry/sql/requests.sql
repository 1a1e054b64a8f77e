-- One row a request: its arrival and, once it has ended, its end. What is known at the end only is
-- NULL while it runs.
--
--: engine [-, -] engine start, 64 random bits
--: request [-, -] request, counted per engine start
--: request_id [-, -] the caller's id
--: step [-, -] step before which it was added
--: ts [ns, -] when it arrived in the scheduler's queue
--: ts_utc [UTC, -] the same, for reading
--: received_ts [ns, -] when the server received it
--: tokenized_ts [ns, -] when its prompt was tokenized
--: num_prompt_tokens [tokens, -] prompt tokens
--: max_tokens [tokens, -] limit of output tokens
--: min_tokens [tokens, -] least output tokens
--: ignore_eos [-, -] generates past the end-of-sequence token
--: priority [-, -] smaller is more urgent
--: arrival_time [s, -] the queue's sort key after priority
--: adapter [-, -] LoRA adapter
--: grammar_key [-, -] salted key of the grammar
--: salt_key [-, -] salted key of the cache salt
--: reads_cache [-, -] looks its prefix up in the cache
--: session [-, -] streaming session
--: trace_id [-, -] trace of the caller, 32 hex digits
--: parent_span_id [-, -] span of the caller, 16 hex digits
--: prefix_request [-, -] earlier request with the longest shared prefix
--: num_shared_tokens [tokens, higher] length of that prefix, whole blocks
--: shared_content_blocks [blocks, -] equal blocks at another place or under other keys
--: is_finished [-, -] whether it has ended
--: finished_step [-, -] step in which it ended
--: finished_ts [ns, -] when it ended
--: finished_ts_utc [UTC, -] the same, for reading
--: finish_reason [-, -] how it ended (FinishReason)
--: error_text [-, -] what a person should read where it failed
--: num_output_tokens [tokens, higher] output tokens
--: num_computed_tokens [tokens, -] computed tokens when it ended
--: num_preemptions [preemptions, lower] times it was preempted
--: queue_ns [ns, lower] arrival to first admission
--: prefill_ns [ns, lower] first admission to first output token
--: decode_ns [ns, lower] first to last output token
--: preempted_ns [ns, lower] preempted and waiting, in all
--: load_ns [ns, lower] waiting for KV loads, in all
--: ttft_ns [ns, lower] arrival to first output token: queue_ns + prefill_ns
--: e2e_ns [ns, lower] arrival to its end
--: mean_itl_ns [ns, lower] mean time between output tokens
--: max_itl_ns [ns, lower] longest time between output tokens
--: drafts_placed [tokens, -] drafts placed, a value a verification
--: drafts_accepted [tokens, higher] drafts accepted, a value a verification
--= SELECT request_id, finish_reason, num_output_tokens, num_preemptions,
--=   ttft_ns // 1000000 AS ttft_ms
--= FROM requests ORDER BY ttft_ns DESC NULLS LAST, engine, request LIMIT 3
CREATE OR REPLACE VIEW requests AS
SELECT
  a.engine,
  a.request,
  a.request_id,
  a.step,
  a.ts,
  utc(a.ts) AS ts_utc,
  a.received_ts,
  a.tokenized_ts,
  a.num_prompt_tokens,
  a.max_tokens,
  a.min_tokens,
  a.ignore_eos,
  a.priority,
  a.arrival_time,
  a.adapter,
  a.grammar_key,
  a.salt_key,
  a.reads_cache,
  a."session",
  a.trace_id,
  a.parent_span_id,
  a.prefix_request,
  a.num_shared_tokens,
  a.shared_content_blocks,
  f.ts IS NOT NULL AS is_finished,
  f.step AS finished_step,
  f.ts AS finished_ts,
  utc(f.ts) AS finished_ts_utc,
  finish_reason_name(f.reason) AS finish_reason,
  f.text AS error_text,
  f.num_output_tokens,
  f.num_computed_tokens,
  f.num_preemptions,
  f.queue_ns,
  f.prefill_ns,
  f.decode_ns,
  f.preempted_ns,
  f.load_ns,
  f.queue_ns + f.prefill_ns AS ttft_ns,
  f.ts - a.ts AS e2e_ns,
  f.mean_itl_ns,
  f.max_itl_ns,
  f.drafts_placed,
  f.drafts_accepted
FROM request_arrivals a
LEFT JOIN request_finishes f ON f.engine = a.engine AND f.request = a.request;
