-- One row a request for which others were evicted, the one that took most first.
--? For whom were the others evicted?
--: engine [-, -] engine start
--: request_id [-, -] the request that needed the blocks
--: num_evictions [preemptions, lower] evictions of others for it
--: num_evictions_of_itself [preemptions, lower] times that it had to go itself
--: num_blocks_gained [blocks, -] KV blocks that these made free
--: num_in_vain [preemptions, lower] evictions after which it got its blocks not even so
SELECT
  p.engine,
  b.request_id,
  count(*) FILTER (WHERE p.beneficiary <> p.request) AS num_evictions,
  count(*) FILTER (WHERE p.beneficiary = p.request) AS num_evictions_of_itself,
  sum(p.num_blocks_freed)::BIGINT AS num_blocks_gained,
  count(*) FILTER (WHERE NOT p.beneficiary_allocated AND p.beneficiary <> p.request) AS num_in_vain
FROM preemptions p
JOIN request_arrivals b ON b.engine = p.engine AND b.request = p.beneficiary
WHERE p.ts BETWEEN $from_ns AND $until_ns AND p.engine = coalesce($engine, p.engine)
GROUP BY p.engine, p.beneficiary, b.request_id
ORDER BY num_evictions DESC, p.engine, p.beneficiary
LIMIT 20;
