-- One row a span, ready for a tracing system: those of request_spans and those of step_spans. On a
-- long log ask the one that is meant.
--
--: engine [-, -] engine start, 64 random bits
--: request [-, -] request; NULL for steps
--: step [-, -] step; for a request, the one before which it was added
--: ts [ns, -] when the request arrived, or the step began
--: name [-, -] llm_request, step, or the phase
--: trace_id [-, -] 32 hex digits
--: span_id [-, -] 16 hex digits
--: parent_span_id [-, -] 16 hex digits; NULL for a root
--: start_ns [ns, -] when it began, since the Unix epoch
--: end_ns [ns, -] when it ended; NULL while open
--: attributes [JSON, -] attributes under OpenTelemetry's GenAI names, and ours under stepscope.
--= SELECT name, count(*) AS num_spans FROM spans
--= GROUP BY name ORDER BY num_spans DESC, name LIMIT 3
CREATE OR REPLACE VIEW spans AS
SELECT * FROM request_spans
UNION ALL
SELECT * FROM step_spans;
