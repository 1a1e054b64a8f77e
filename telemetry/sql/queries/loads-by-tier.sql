-- One row a tier that KV was loaded from, and way in which the loads ended.
--? How long did KV loads take, by tier, and how many failed?
--: connector [-, -] connector that loaded
--: tier [-, -] where the KV lay; NULL where the connector does not say
--: outcome [-, -] finished, failed, timed_out or pending
--: num_loads [loads, -] loads
--: num_tokens [tokens, higher] tokens that they brought
--: p50_ms [ms, lower] median time of a load
--: p95_ms [ms, lower] 95 of 100 took at most so long
--: max_ms [ms, lower] the longest
SELECT
  connector,
  tier,
  outcome,
  count(*) AS num_loads,
  sum(num_tokens)::BIGINT AS num_tokens,
  round(quantile_disc(load_ns, 0.5) / 1e6, 1) AS p50_ms,
  round(quantile_disc(load_ns, 0.95) / 1e6, 1) AS p95_ms,
  round(max(load_ns) / 1e6, 1) AS max_ms
FROM connector_loads
WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
GROUP BY ALL
ORDER BY num_loads DESC, tier, outcome;
