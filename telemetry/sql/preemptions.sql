-- One row a preemption: who lost its blocks to whom and by which rule, what was lost, and where the
-- lost tokens went. In every row, and so in every sum of rows,
--   num_computed_tokens_lost = num_tokens_recomputed + num_tokens_regained_from_prefix_cache
--     + num_tokens_regained_from_connector + num_tokens_lost_again + num_tokens_never_resumed
--     + num_tokens_pending.
-- All six are NULL where the source does not know what was lost.
--
--: engine [-, -] engine start, 64 random bits
--: step [-, -] step that preempted (between steps: the next one)
--: seq [-, -] order of the engine's events: inside a step, the order of the evictions
--: ts [ns, -] when it was preempted
--: ts_utc [UTC, -] the same, for reading
--: request [-, -] the victim
--: request_id [-, -] the victim's id as its caller gave it
--: cause [-, -] kv_full, priority or cache_reset (PreemptionCause)
--: victim_rule [-, -] how the victim was chosen (VictimRule)
--: beneficiary [-, -] request whose allocation failed; the victim where it evicted itself; NULL
--:   for a cache reset
--: beneficiary_allocated [-, higher] whether the beneficiary got its blocks in the end
--: victim_priority [-, -] priority of the victim; smaller is more urgent
--: beneficiary_priority [-, -] priority of the beneficiary
--: num_blocks_needed [blocks, -] KV blocks that the failed allocation asked for
--: num_blocks_free_before [blocks, -] free KV blocks before the eviction
--: num_blocks_freed [blocks, -] KV blocks that the eviction made free
--: num_blocks_deferred [blocks, lower] KV blocks whose release waits for a step in flight
--: num_computed_tokens_lost [tokens, lower] computed tokens just before they were zeroed
--: num_in_flight_tokens [tokens, -] of these, in steps not updated yet
--: num_output_tokens_kept [tokens, -] output tokens that the victim keeps
--: num_withdrawn_tokens [tokens, -] tokens given back to this step's budget
--: num_withdrawn_embeds [embeddings, -] encoder embeddings given back to this step's budget
--: num_withdrawn_drafts [tokens, -] draft tokens withdrawn from this step
--: was_prefill [-, -] whether it had not reached its newest token
--: nth [-, -] which preemption of this request, from 1
--: resumed_step [-, -] step in which it ran again; NULL until then
--: resumed_ts [ns, -] when it ran again; NULL until then
--: out_ns [ns, lower] from the preemption until it ran again; NULL until then
--: outcome [-, -] resumed; never_resumed (it ended while preempted); pending (still out, or its
--:   engine is gone)
--: num_tokens_recomputed [tokens, lower] computed again below the most that the request ever had,
--:   until its next preemption
--: num_tokens_regained_from_prefix_cache [tokens, higher] found in the prefix cache when it resumed
--: num_tokens_regained_from_connector [tokens, higher] taken from a KV connector when it resumed
--: num_tokens_lost_again [tokens, lower] still missing when the next preemption came, less those
--:   that this row took over from the one before; may be negative in a row, 0 over a request's
--:   life
--: num_tokens_never_resumed [tokens, -] still missing when the request ended
--: num_tokens_pending [tokens, -] still missing, and the request has not ended
--= SELECT cause, count(*) AS num_preemptions, sum(num_computed_tokens_lost) AS num_tokens_lost,
--=   sum(num_tokens_recomputed) AS num_tokens_recomputed
--= FROM preemptions GROUP BY cause ORDER BY num_preemptions DESC, cause
CREATE OR REPLACE VIEW preemptions AS
WITH moves AS (
  SELECT
    engine, request, seq, step, ts, kind,
    num_hit_tokens, num_external_tokens, num_scheduled_tokens,
    count(*) FILTER (WHERE kind = event_kind('preempted'))
      OVER (PARTITION BY engine, request ORDER BY seq) AS stretch
  FROM request_events
  WHERE kind IN (
    event_kind('preempted'), event_kind('resumed'),
    event_kind('first_token'), event_kind('caught_up')
  )
),
-- What followed each preemption, up to the next one.
comebacks AS (
  SELECT
    engine, request, stretch,
    min(step) FILTER (WHERE kind = event_kind('resumed')) AS resumed_step,
    min(ts) FILTER (WHERE kind = event_kind('resumed')) AS resumed_ts,
    max(num_hit_tokens::BIGINT) AS num_hit,
    max(num_external_tokens::BIGINT) AS num_external,
    max(num_scheduled_tokens::BIGINT) AS num_scheduled,
    bool_or(kind <> event_kind('resumed')) AS has_caught_up
  FROM moves
  WHERE stretch > 0 AND kind <> event_kind('preempted')
  GROUP BY engine, request, stretch
),
losses AS (
  SELECT
    *,
    row_number() OVER life AS stretch,
    lead(seq) OVER life IS NOT NULL AS has_next,
    lead(num_computed_tokens_lost::BIGINT) OVER life AS next_lost,
    max(num_computed_tokens_lost::BIGINT)
      OVER (life ROWS UNBOUNDED PRECEDING) AS high_water
  FROM request_events
  WHERE kind = event_kind('preempted')
  WINDOW life AS (PARTITION BY engine, request ORDER BY seq)
),
followed AS (
  SELECT
    l.*,
    c.resumed_step,
    c.resumed_ts,
    coalesce(c.num_hit, 0) AS num_hit,
    coalesce(c.num_external, 0) AS num_external,
    coalesce(c.num_scheduled, 0) AS num_scheduled,
    coalesce(c.has_caught_up, false) AS has_caught_up,
    f.ts IS NOT NULL AS has_finished,
    f.num_computed_tokens::BIGINT AS finished_at
  FROM losses l
  LEFT JOIN comebacks c
    ON c.engine = l.engine AND c.request = l.request AND c.stretch = l.stretch
  LEFT JOIN request_finishes f ON f.engine = l.engine AND f.request = l.request
),
-- Only a request that is computing its lost tokens right now needs its dense rows.
catching_up AS (
  SELECT engine, request, resumed_ts, resumed_step
  FROM followed
  WHERE resumed_ts IS NOT NULL AND NOT has_next AND NOT has_finished AND NOT has_caught_up
),
progress AS (
  SELECT
    c.engine,
    c.request,
    arg_max(s.num_computed_tokens::BIGINT + s.num_scheduled_tokens::BIGINT, s.step) AS reached
  FROM catching_up c
  JOIN step_requests s
    ON s.engine = c.engine AND s.request = c.request AND s.step >= c.resumed_step
  WHERE s.ts >= (SELECT min(resumed_ts) FROM catching_up) - 60000000000
  GROUP BY c.engine, c.request
),
-- have: tokens below the high-water mark that were there again before the next loss, or are now.
held AS (
  SELECT
    d.*,
    least(
      d.high_water,
      CASE
        WHEN d.has_next THEN d.next_lost
        WHEN d.has_caught_up THEN d.high_water
        WHEN d.has_finished AND d.finished_at IS NOT NULL THEN d.finished_at
        WHEN d.resumed_ts IS NULL THEN 0
        ELSE greatest(d.num_hit + d.num_external + d.num_scheduled, coalesce(p.reached, 0))
      END
    ) AS have
  FROM followed d
  LEFT JOIN progress p ON NOT d.has_next AND p.engine = d.engine AND p.request = d.request
),
parts AS (
  SELECT
    *,
    CASE WHEN num_computed_tokens_lost IS NOT NULL THEN high_water - have END AS missing,
    high_water - num_computed_tokens_lost::BIGINT AS taken_over,
    least(num_hit, have) AS from_cache,
    least(num_hit + num_external, have) AS from_anywhere
  FROM held
)
SELECT
  p.engine,
  p.step,
  p.seq,
  p.ts,
  utc(p.ts) AS ts_utc,
  p.request,
  a.request_id,
  preemption_cause_name(p.cause) AS cause,
  victim_rule_name(p.victim_rule) AS victim_rule,
  p.beneficiary,
  p.beneficiary_allocated::BOOLEAN AS beneficiary_allocated,
  p.victim_priority,
  p.beneficiary_priority,
  p.num_blocks_needed,
  p.num_blocks_free_before,
  p.num_blocks_freed,
  p.num_blocks_deferred,
  p.num_computed_tokens_lost,
  p.num_in_flight_tokens,
  p.num_output_tokens_kept,
  p.num_withdrawn_tokens,
  p.num_withdrawn_embeds,
  p.num_withdrawn_drafts,
  p.was_prefill::BOOLEAN AS was_prefill,
  coalesce(p.nth::BIGINT, p.stretch) AS nth,
  p.resumed_step,
  p.resumed_ts,
  p.resumed_ts - p.ts AS out_ns,
  CASE
    WHEN p.resumed_ts IS NOT NULL OR p.has_next THEN 'resumed'
    WHEN p.has_finished THEN 'never_resumed'
    ELSE 'pending'
  END AS outcome,
  CASE WHEN p.missing IS NOT NULL THEN p.have - p.from_anywhere END AS num_tokens_recomputed,
  CASE WHEN p.missing IS NOT NULL THEN p.from_cache END AS num_tokens_regained_from_prefix_cache,
  CASE WHEN p.missing IS NOT NULL THEN p.from_anywhere - p.from_cache END
    AS num_tokens_regained_from_connector,
  CASE WHEN p.has_next THEN p.missing ELSE 0 END - p.taken_over AS num_tokens_lost_again,
  CASE WHEN NOT p.has_next AND p.has_finished THEN p.missing ELSE 0 * p.missing END
    AS num_tokens_never_resumed,
  CASE WHEN NOT p.has_next AND NOT p.has_finished THEN p.missing ELSE 0 * p.missing END
    AS num_tokens_pending
FROM parts p
LEFT JOIN request_arrivals a ON a.engine = p.engine AND a.request = p.request;
