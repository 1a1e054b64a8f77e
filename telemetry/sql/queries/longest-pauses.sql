-- One row a request, the one whose answer paused longest first.
--? Whose answer stood still longest, and was it a preemption?
--: engine [-, -] engine start
--: request_id [-, -] the request
--: longest_pause_ms [ms, lower] longest time between two of its tokens
--: num_preemptions [preemptions, lower] times it was evicted
--: longest_out_ms [ms, lower] longest time it was out; NULL where it was never evicted
WITH outs AS (
  SELECT engine, request, max(out_ns) AS longest_out_ns FROM preemptions GROUP BY ALL
)
SELECT
  r.engine,
  r.request_id,
  round(r.max_itl_ns / 1e6, 1) AS longest_pause_ms,
  r.num_preemptions,
  round(o.longest_out_ns / 1e6, 1) AS longest_out_ms
FROM requests r
LEFT JOIN outs o ON o.engine = r.engine AND o.request = r.request
WHERE r.ts BETWEEN $from_ns AND $until_ns AND r.engine = coalesce($engine, r.engine)
  AND r.max_itl_ns IS NOT NULL
ORDER BY r.max_itl_ns DESC, r.engine, r.request
LIMIT 10;
