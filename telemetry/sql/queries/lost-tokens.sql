-- One row an engine: where the tokens went that preemptions cost it. The last six add up to the loss.
--? What did the preemptions cost, and where did the lost tokens go?
--: engine [-, -] engine start
--: num_preemptions [preemptions, lower] preemptions
--: num_tokens_lost [tokens, lower] computed tokens lost
--: num_recomputed [tokens, lower] of these, computed again
--: num_from_prefix_cache [tokens, higher] found in the prefix cache when the request came back
--: num_from_connector [tokens, higher] brought back by a KV connector
--: num_lost_again [tokens, lower] missing still when the next preemption came
--: num_never_resumed [tokens, -] of requests that ended while they were out
--: num_pending [tokens, -] of requests that are still out, or coming back
SELECT
  engine,
  count(*) AS num_preemptions,
  sum(num_computed_tokens_lost)::BIGINT AS num_tokens_lost,
  sum(num_tokens_recomputed)::BIGINT AS num_recomputed,
  sum(num_tokens_regained_from_prefix_cache)::BIGINT AS num_from_prefix_cache,
  sum(num_tokens_regained_from_connector)::BIGINT AS num_from_connector,
  sum(num_tokens_lost_again)::BIGINT AS num_lost_again,
  sum(num_tokens_never_resumed)::BIGINT AS num_never_resumed,
  sum(num_tokens_pending)::BIGINT AS num_pending
FROM preemptions
WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
GROUP BY engine
ORDER BY num_tokens_lost DESC;
