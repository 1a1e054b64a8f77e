-- One row a span of a step: `step` from its beginning to the end of its update, and a child for
-- each phase whose time is known, laid end to end from the step's beginning (the record holds how
-- long a phase took, not when it began). Ids are hashes, so the same log gives the same spans.
--
--: engine [-, -] engine start, 64 random bits
--: request [-, -] NULL; here so that request_spans has the same columns
--: step [-, -] step, counted per engine start
--: ts [ns, -] when the step began
--: name [-, -] step, or the phase
--: trace_id [-, -] 32 hex digits
--: span_id [-, -] 16 hex digits
--: parent_span_id [-, -] 16 hex digits; NULL for a root
--: start_ns [ns, -] when it began, since the Unix epoch
--: end_ns [ns, -] when it ended; NULL while nothing is known of it
--: attributes [JSON, -] attributes, under stepscope.
--= SELECT name, count(*) AS num_spans FROM step_spans
--= GROUP BY name ORDER BY num_spans DESC, name LIMIT 3
CREATE OR REPLACE MACRO step_span_id(engine, step) AS
  left(md5(format('stepscope/step/{:016x}/{}', engine, step)), 16);

CREATE OR REPLACE VIEW step_spans AS
WITH phases AS (
  SELECT
    engine, step, ts, updated_ts, num_scheduled_tokens, stop_reason, num_preempted,
    [
      {'name': 'schedule', 'ns': schedule_ns}, {'name': 'bitmask', 'ns': bitmask_ns},
      {'name': 'inputs', 'ns': inputs_ns}, {'name': 'forward', 'ns': forward_ns},
      {'name': 'draft', 'ns': draft_ns}, {'name': 'sample', 'ns': sample_ns},
      {'name': 'connector', 'ns': connector_ns}, {'name': 'update', 'ns': update_ns}
    ] AS parts
  FROM steps
)
SELECT
  p.engine,
  NULL::UINTEGER AS request,
  p.step,
  p.ts,
  'step' AS name,
  md5(format('stepscope/step-trace/{:016x}/{}', p.engine, p.step)) AS trace_id,
  step_span_id(p.engine, p.step) AS span_id,
  NULL::VARCHAR AS parent_span_id,
  p.ts AS start_ns,
  coalesce(p.updated_ts, p.ts + list_sum(list_transform(p.parts, lambda x: x.ns))::BIGINT)
    AS end_ns,
  present(json_object(
    'stepscope.engine', format('{:016x}', p.engine),
    'stepscope.step', p.step,
    'stepscope.num_scheduled_tokens', p.num_scheduled_tokens,
    'stepscope.num_preempted', p.num_preempted,
    'stepscope.stop_reason', stop_reason_name(p.stop_reason)
  )) AS attributes
FROM phases p
UNION ALL
SELECT
  q.engine,
  NULL,
  q.step,
  q.ts,
  q.part.name,
  md5(format('stepscope/step-trace/{:016x}/{}', q.engine, q.step)),
  left(md5(format('stepscope/step/{:016x}/{}/{}', q.engine, q.step, q.part.name)), 16),
  step_span_id(q.engine, q.step),
  q.ts + q.before_ns,
  q.ts + q.before_ns + q.part.ns,
  json_object('stepscope.step', q.step)
FROM (
  SELECT
    engine, step, ts,
    unnest(parts) AS part,
    unnest(list_transform(parts, lambda part, i:
      coalesce(list_sum(list_transform(parts[:i - 1], lambda before: before.ns)), 0)::BIGINT
    )) AS before_ns
  FROM phases
) q
WHERE q.part.ns IS NOT NULL;
