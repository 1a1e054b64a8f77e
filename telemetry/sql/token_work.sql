-- One row a step: what its scheduled tokens were good for. The five parts add up to
-- num_scheduled_tokens in every row whose source tells them apart, once its step is updated. A draft
-- whose verdict nobody took, because its request had left or lost its blocks, was not accepted.
--
--: engine [-, -] engine start, 64 random bits
--: step [-, -] step, counted per engine start
--: ts [ns, -] when the step began
--: ts_utc [UTC, -] the same, for reading
--: num_scheduled_tokens [tokens, -] tokens scheduled in all
--: num_useful_prefill_tokens [tokens, higher] prompt tokens computed for the first time
--: num_useful_decode_tokens [tokens, higher] output tokens computed for the first time, and
--:   accepted drafts
--: num_recomputed_tokens [tokens, lower] computed before and lost to a preemption
--: num_rejected_draft_tokens [tokens, lower] draft tokens that were not accepted; NULL until the
--:   step is updated
--: num_padding_tokens [tokens, lower] padding drafts
--= SELECT sum(num_useful_prefill_tokens) AS prefill, sum(num_useful_decode_tokens) AS decode,
--=   sum(num_recomputed_tokens) AS recomputed, sum(num_scheduled_tokens) AS scheduled
--= FROM token_work
CREATE OR REPLACE VIEW token_work AS
SELECT
  engine,
  step,
  ts,
  utc(ts) AS ts_utc,
  num_scheduled_tokens::BIGINT AS num_scheduled_tokens,
  num_prefill_tokens::BIGINT AS num_useful_prefill_tokens,
  num_decode_tokens::BIGINT + coalesce(num_accepted, 0)::BIGINT AS num_useful_decode_tokens,
  num_recomputed_tokens::BIGINT AS num_recomputed_tokens,
  CASE
    WHEN coalesce(num_draft_tokens, 0) = 0 THEN 0
    WHEN num_accepted IS NULL AND updated_ts IS NULL THEN NULL
    ELSE greatest(num_draft_tokens::BIGINT - coalesce(num_accepted, 0)::BIGINT, 0)
  END AS num_rejected_draft_tokens,
  -- Padding that proved right was no padding: the runner had put a draft in its place.
  coalesce(num_padding_tokens, 0)::BIGINT - greatest(
    coalesce(num_accepted, 0)::BIGINT - coalesce(num_draft_tokens, 0)::BIGINT, 0
  ) AS num_padding_tokens
FROM steps
WHERE steps.num_scheduled_tokens IS NOT NULL;
