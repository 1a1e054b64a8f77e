-- One row a kind of work: what the scheduled tokens were good for. The shares add up to 1.
--? How much of the work was wasted?
--: work [-, -] prefill, decode, recomputed, rejected drafts or padding
--: num_tokens [tokens, -] scheduled tokens
--: share_ratio [ratio, -] part of all scheduled tokens
WITH sums AS (
  SELECT
    sum(num_useful_prefill_tokens)::BIGINT AS prefill,
    sum(num_useful_decode_tokens)::BIGINT AS decode,
    sum(num_recomputed_tokens)::BIGINT AS recomputed,
    sum(num_rejected_draft_tokens)::BIGINT AS "rejected drafts",
    sum(num_padding_tokens)::BIGINT AS padding
  FROM token_work
  WHERE ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
)
SELECT
  work,
  num_tokens,
  round(num_tokens / sum(num_tokens) OVER (), 3) AS share_ratio
FROM sums
UNPIVOT (num_tokens FOR work IN (prefill, decode, recomputed, "rejected drafts", padding))
ORDER BY num_tokens DESC, work;
