-- One row a request that was evicted often, the worst first.
--? Which requests were evicted more than twice, by whom, and what did it cost?
--: engine [-, -] engine start
--: request_id [-, -] the request, as its caller calls it
--: num_preemptions [preemptions, lower] how often it was evicted
--: evicted_for [-, -] the requests that got its blocks, most often first
--: num_tokens_lost [tokens, lower] computed tokens that it lost
--: num_tokens_recomputed [tokens, lower] of these, computed again
--: out_ms [ms, lower] how long it was out in all, until it ran again
--$ at_least [integer = 3] evicted so often or more often
WITH evictions AS (
  SELECT p.*, coalesce(b.request_id, 'nobody: a cache reset') AS evicted_for
  FROM preemptions p
  LEFT JOIN request_arrivals b ON b.engine = p.engine AND b.request = p.beneficiary
  WHERE p.ts BETWEEN $from_ns AND $until_ns AND p.engine = coalesce($engine, p.engine)
),
times AS (
  SELECT engine, request, evicted_for, count(*) AS num FROM evictions GROUP BY ALL
),
names AS (
  SELECT engine, request, string_agg(evicted_for, ', ' ORDER BY num DESC, evicted_for) AS evicted_for
  FROM times GROUP BY ALL
)
SELECT
  e.engine,
  any_value(e.request_id) AS request_id,
  count(*) AS num_preemptions,
  any_value(n.evicted_for) AS evicted_for,
  sum(e.num_computed_tokens_lost)::BIGINT AS num_tokens_lost,
  sum(e.num_tokens_recomputed)::BIGINT AS num_tokens_recomputed,
  round(sum(e.out_ns) / 1e6, 1) AS out_ms
FROM evictions e
JOIN names n ON n.engine = e.engine AND n.request = e.request
GROUP BY e.engine, e.request
HAVING count(*) >= $at_least
ORDER BY num_preemptions DESC, num_tokens_lost DESC, e.engine, e.request
LIMIT 20;
