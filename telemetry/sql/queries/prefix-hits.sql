-- One row an engine: what the prefix cache found of the prompts that were admitted for the first time.
--? How much did the prefix cache save?
--: engine [-, -] engine start
--: num_admissions [requests, -] admissions that looked into it
--: num_hit_tokens [tokens, higher] prompt tokens that it found
--: num_prompt_tokens [tokens, -] prompt tokens in all
--: hit_ratio [ratio, higher] part of them that it found
--: num_missed_blocks_evicted [blocks, lower] missed blocks that it had had, and given away; NULL
--:   where the engine does not tell
SELECT
  e.engine,
  count(*) AS num_admissions,
  sum(e.num_hit_tokens)::BIGINT AS num_hit_tokens,
  sum(a.num_prompt_tokens)::BIGINT AS num_prompt_tokens,
  round(sum(e.num_hit_tokens) / sum(a.num_prompt_tokens), 3) AS hit_ratio,
  sum(e.num_missed_blocks_seen_before)::BIGINT AS num_missed_blocks_evicted
FROM request_events e
JOIN request_arrivals a ON a.engine = e.engine AND a.request = e.request
WHERE e.ts BETWEEN $from_ns AND $until_ns AND e.engine = coalesce($engine, e.engine)
  AND e.kind = event_kind('admitted') AND e.num_hit_tokens IS NOT NULL
GROUP BY e.engine
ORDER BY e.engine;
