-- One row a span of a request: `llm_request` from its arrival to its end, and a child for each of
-- its intervals. Ids are hashes, so the same log gives the same spans. Trace and parent are those
-- of the caller where it sent any that are well formed. Attributes that are not known are left out.
--
--: engine [-, -] engine start, 64 random bits
--: request [-, -] request, counted per engine start
--: step [-, -] step in which, or before which, it began
--: ts [ns, -] when the request arrived
--: name [-, -] llm_request, or the phase of the interval
--: trace_id [-, -] 32 hex digits
--: span_id [-, -] 16 hex digits
--: parent_span_id [-, -] 16 hex digits; NULL for a root
--: start_ns [ns, -] when it began, since the Unix epoch
--: end_ns [ns, -] when it ended; NULL while open
--: attributes [JSON, -] attributes under OpenTelemetry's GenAI names, and ours under stepscope.
--= SELECT name, count(*) AS num_spans FROM request_spans
--= GROUP BY name ORDER BY num_spans DESC, name LIMIT 3
CREATE OR REPLACE MACRO callers_id(id, num_digits) AS
  CASE
    WHEN length(id) = num_digits AND regexp_full_match(lower(id), '[0-9a-f]*[1-9a-f][0-9a-f]*')
      THEN lower(id)
  END;

CREATE OR REPLACE MACRO request_trace_id(engine, request, trace_id) AS
  coalesce(
    callers_id(trace_id, 32),
    md5(format('stepscope/trace/{:016x}/{}', engine, request))
  );

CREATE OR REPLACE MACRO request_span_id(engine, request) AS
  left(md5(format('stepscope/request/{:016x}/{}', engine, request)), 16);

CREATE OR REPLACE VIEW request_spans AS
WITH models AS (
  SELECT engine, any_value(model) AS model FROM engines GROUP BY engine
)
SELECT
  r.engine,
  r.request,
  r.step,
  r.ts,
  'llm_request' AS name,
  request_trace_id(r.engine, r.request, r.trace_id) AS trace_id,
  request_span_id(r.engine, r.request) AS span_id,
  CASE WHEN callers_id(r.trace_id, 32) IS NOT NULL THEN callers_id(r.parent_span_id, 16) END
    AS parent_span_id,
  r.ts AS start_ns,
  r.finished_ts AS end_ns,
  present(json_object(
    'gen_ai.request.model', m.model,
    'gen_ai.request.max_tokens', r.max_tokens,
    'gen_ai.response.id', r.request_id,
    'gen_ai.response.finish_reasons',
      CASE WHEN r.finish_reason IS NOT NULL THEN json_array(r.finish_reason) END,
    'gen_ai.usage.input_tokens', r.num_prompt_tokens,
    'gen_ai.usage.output_tokens', r.num_output_tokens,
    'error.type', CASE WHEN r.finish_reason IN ('error', 'refused') THEN r.finish_reason END,
    'stepscope.engine', format('{:016x}', r.engine),
    'stepscope.request', r.request,
    'stepscope.priority', r.priority,
    'stepscope.num_preemptions', r.num_preemptions,
    'stepscope.queue_ns', r.queue_ns,
    'stepscope.prefill_ns', r.prefill_ns,
    'stepscope.decode_ns', r.decode_ns,
    'stepscope.preempted_ns', r.preempted_ns,
    'stepscope.ttft_ns', r.ttft_ns
  )) AS attributes
FROM requests r
LEFT JOIN models m ON m.engine = r.engine
UNION ALL
SELECT
  i.engine,
  i.request,
  i.start_step,
  a.ts,
  i.phase,
  request_trace_id(i.engine, i.request, a.trace_id),
  left(md5(format('stepscope/{}/{:016x}/{}/{}', i.phase, i.engine, i.request, i.nth)), 16),
  request_span_id(i.engine, i.request),
  i.start_ts,
  i.end_ts,
  present(json_object(
    'stepscope.nth', i.nth,
    'stepscope.wait_reason', i.reason,
    'stepscope.start_step', i.start_step,
    'stepscope.end_step', i.end_step
  ))
FROM request_intervals i
LEFT JOIN request_arrivals a ON a.engine = i.engine AND a.request = i.request;
