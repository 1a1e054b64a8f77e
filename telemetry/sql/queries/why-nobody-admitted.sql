-- One row a reason that ended the admission of a step which admitted nobody, though somebody waited.
--? Why did nobody get admitted between 14:02 and 14:05?
--: stop_reason [-, -] why admission ended (docs/record.md says what helps)
--: num_steps [steps, lower] steps that ended so
--: share_ratio [ratio, -] part of all steps that admitted nobody while somebody waited
--: most_waiting [requests, lower] requests that waited at most
--: most_blocks_short [blocks, lower] KV blocks that the head of the queue lacked at most; 0 where they
--:   sufficed, NULL where blocks were not what stopped it
--: first_step [-, -] the first such step
--: last_step [-, -] the last one
SELECT
  s.stop_reason,
  sum(s.num_repeats)::BIGINT AS num_steps,
  round(sum(s.num_repeats) / sum(sum(s.num_repeats)) OVER (), 3) AS share_ratio,
  max(s.num_waiting) AS most_waiting,
  max(greatest(s.head_blocks_needed::BIGINT - s.num_blocks_free, 0)) AS most_blocks_short,
  min(s.step) AS first_step,
  max(s.step) AS last_step
FROM admission_stops s
JOIN steps t ON t.engine = s.engine AND t.step = s.step
WHERE s.ts BETWEEN $from_ns AND $until_ns AND s.engine = coalesce($engine, s.engine)
  AND t.ts BETWEEN $from_ns AND $until_ns
  AND t.num_admitted + t.num_resumed = 0 AND s.num_waiting > 0
GROUP BY s.stop_reason
ORDER BY num_steps DESC, s.stop_reason;
