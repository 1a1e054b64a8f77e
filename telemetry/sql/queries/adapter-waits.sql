-- One row an adapter, the one whose requests waited longest to be admitted first.
--? Which adapter waited longest?
--: adapter [-, -] the adapter; NULL for the model without one
--: num_requests [requests, -] requests that came for it
--: p50_queue_ms [ms, lower] median time until admission
--: max_queue_ms [ms, lower] the longest
--: num_set_aside [events, lower] times a request of it was set aside for want of an adapter slot
WITH set_aside AS (
  SELECT engine, request, count(*) AS num
  FROM request_events
  WHERE kind = event_kind('skipped') AND reason = skip_reason('lora_slots')
  GROUP BY engine, request
)
SELECT
  r.adapter,
  count(*) AS num_requests,
  round(quantile_disc(r.queue_ns, 0.5) / 1e6, 1) AS p50_queue_ms,
  round(max(r.queue_ns) / 1e6, 1) AS max_queue_ms,
  coalesce(sum(s.num), 0)::BIGINT AS num_set_aside
FROM requests r
LEFT JOIN set_aside s ON s.engine = r.engine AND s.request = r.request
WHERE r.ts BETWEEN $from_ns AND $until_ns AND r.engine = coalesce($engine, r.engine)
GROUP BY r.adapter
ORDER BY max_queue_ms DESC NULLS LAST, r.adapter;
