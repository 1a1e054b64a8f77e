-- One row an event in the life of one request, in order.
--? What happened to this one request?
--: at_utc [UTC, -] when
--: after_ms [ms, -] since it arrived
--: step [-, -] step that it belongs to
--: what [-, -] what happened (EventKind)
--: why [-, -] the reason: why it was set aside, evicted, or how it ended
--: num_tokens [tokens, -] tokens found in the prefix cache when it was let in, computed tokens lost
--:   when it was evicted
--$ request_id [text] the request, as its caller calls it
SELECT
  utc(e.ts) AS at_utc,
  round((e.ts - a.ts) / 1e6, 1) AS after_ms,
  e.step,
  event_kind_name(e.kind) AS what,
  CASE event_kind_name(e.kind)
    WHEN 'skipped' THEN skip_reason_name(e.reason)
    WHEN 'finished' THEN finish_reason_name(e.reason)
    WHEN 'preempted' THEN preemption_cause_name(e.cause) || coalesce(' for ' || b.request_id, '')
  END AS why,
  coalesce(e.num_computed_tokens_lost, e.num_hit_tokens) AS num_tokens
FROM request_arrivals a
JOIN request_events e ON e.engine = a.engine AND e.request = a.request
LEFT JOIN request_arrivals b ON b.engine = e.engine AND b.request = e.beneficiary
WHERE a.request_id = $request_id AND a.engine = coalesce($engine, a.engine)
ORDER BY a.engine, e.seq
LIMIT 200;
