-- One row an `llm_request` span that an engine exported itself, beside what was recorded of the same
-- request, if it was. A span is told once, when its request has finished, and knows nothing of
-- preemptions: what a request waited after one is inside its decode or prefill. A span that came
-- twice (an exporter that tried again) is one row.
--
--: engine [-, -] engine start that recorded the request; the span's own engine where none did
--: request [-, -] request, counted per engine start; NULL where nobody recorded it
--: request_id [-, -] the caller's id
--: joined_by [-, -] request_id, internal_id (vLLM's own, the caller's with 8 digits behind it) or
--:   trace (same trace and caller's span); NULL where nobody recorded it
--: ts [ns, -] when the span ended
--: ts_utc [UTC, -] the same, for reading
--: span_engine [-, -] engine as the span's resource tells it
--: service [-, -] service.name of the resource
--: trace_id [-, -] trace, 32 hex digits
--: span_id [-, -] span, 16 hex digits
--: parent_span_id [-, -] span of the caller, 16 hex digits
--: span_start_ts [ns, -] when the span started: the request's arrival at the server
--: num_prompt_tokens [tokens, -] prompt tokens, by the span
--: num_output_tokens [tokens, higher] output tokens, by the span
--: span_queue_ns [ns, lower] time in the queue, by the span: before the first admission only
--: queue_ns [ns, lower] arrival to first admission, as recorded
--: span_prefill_ns [ns, lower] first admission to first output token, by the span
--: prefill_ns [ns, lower] the same, as recorded
--: span_decode_ns [ns, lower] first to last output token, by the span
--: decode_ns [ns, lower] the same, as recorded
--: span_ttft_ns [ns, lower] arrival to first output token, by the span: from the server's door
--: ttft_ns [ns, lower] the same, as recorded: from the scheduler's queue
--: span_e2e_ns [ns, lower] arrival to the end, by the span
--: e2e_ns [ns, lower] the same, as recorded
--: num_preemptions [preemptions, lower] times it was preempted, as recorded
--: preempted_ns [ns, lower] preempted and waiting, in all, as recorded: the span hides it
--: hidden_ratio [ratio, lower] part of the span's prefill and decode that was such waiting
--= SELECT request_id, span_queue_ns // 1000000 AS queue_ms, span_decode_ns // 1000000 AS decode_ms,
--=   num_preemptions, preempted_ns // 1000000 AS hidden_ms, round(hidden_ratio, 2) AS hidden_ratio
--= FROM request_traces ORDER BY hidden_ratio DESC NULLS LAST, request_id LIMIT 3
CREATE OR REPLACE VIEW request_traces AS
WITH told AS (
  SELECT *, row_number() OVER (ORDER BY ts, trace_id, span_id) AS number
  FROM engine_spans
  WHERE name = 'llm_request'
  QUALIFY row_number() OVER (PARTITION BY trace_id, span_id ORDER BY ts, import_id) = 1
),
names AS (
  SELECT engine, request, ts, request_id AS id, 'request_id' AS joined_by, 1 AS preference
  FROM request_arrivals
  UNION ALL
  SELECT engine, request, ts, left(request_id, length(request_id) - 9), 'internal_id', 2
  FROM request_arrivals
  WHERE regexp_full_match(request_id, '.+-[0-9a-f]{8}')
),
candidates AS (
  SELECT t.number, n.engine, n.request, n.ts, n.joined_by, n.preference
  FROM told t
  JOIN names n ON n.id = t.request_id
  UNION ALL
  SELECT t.number, a.engine, a.request, a.ts, 'trace', 3
  FROM told t
  JOIN request_arrivals a
    ON lower(a.trace_id) = t.trace_id AND lower(a.parent_span_id) = t.parent_span_id
),
-- An id may come again, hours later: the request arrived while the span lasted, give or take a minute
-- between two clocks, and of several the nearest one is meant.
joined AS (
  SELECT c.number, c.engine, c.request, c.joined_by
  FROM candidates c
  JOIN told t ON t.number = c.number
  WHERE c.ts BETWEEN coalesce(t.start_ts, t.ts) - 60000000000 AND t.ts + 60000000000
  QUALIFY row_number() OVER (
    PARTITION BY c.number
    ORDER BY c.preference, abs(c.ts - coalesce(t.start_ts, t.ts)), c.engine, c.request
  ) = 1
)
SELECT
  coalesce(j.engine, t.engine) AS engine,
  j.request,
  coalesce(r.request_id, t.request_id) AS request_id,
  j.joined_by,
  t.ts,
  utc(t.ts) AS ts_utc,
  t.engine AS span_engine,
  t.service,
  t.trace_id,
  t.span_id,
  t.parent_span_id,
  t.start_ts AS span_start_ts,
  t.num_prompt_tokens,
  t.num_output_tokens,
  t.queue_ns AS span_queue_ns,
  r.queue_ns,
  t.prefill_ns AS span_prefill_ns,
  r.prefill_ns,
  t.decode_ns AS span_decode_ns,
  r.decode_ns,
  t.ttft_ns AS span_ttft_ns,
  r.ttft_ns,
  t.e2e_ns AS span_e2e_ns,
  r.e2e_ns,
  r.num_preemptions,
  r.preempted_ns,
  r.preempted_ns / nullif(t.prefill_ns + t.decode_ns, 0) AS hidden_ratio
FROM told t
LEFT JOIN joined j ON j.number = t.number
LEFT JOIN requests r ON r.engine = j.engine AND r.request = j.request;
