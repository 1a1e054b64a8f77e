"""What is counted per bin of the engine's work: preemptions by cause, and tokens by use."""

from __future__ import annotations

from dashboard.queries.reduction import bin_of, x_of_bin
from diagnose.reading import Scope


def preemptions_per_bin(scope: Scope, length_ns: int) -> str:
    """Returns preemptions by cause in each bin; `unattributed` is what steps counted beyond."""
    number = bin_of(length_ns)
    return f"""
WITH causes AS (
  SELECT {number} AS bin, cause, count(*) AS n
  FROM preemptions WHERE {scope.where()} GROUP BY ALL
),
counted AS (
  SELECT {number} AS bin, sum(num_preempted)::BIGINT AS n
  FROM steps WHERE {scope.where()} GROUP BY ALL
)
SELECT {x_of_bin(scope, length_ns)} AS x, coalesce(cause, 'unattributed') AS cause, n FROM causes
UNION ALL
SELECT {x_of_bin(scope, length_ns, "c.bin")}, 'unattributed', c.n - coalesce(r.n, 0)
FROM counted c
LEFT JOIN (
  SELECT bin, sum(n)::BIGINT AS n FROM causes
  WHERE cause IS DISTINCT FROM 'cache_reset' GROUP BY bin
) r USING (bin)
WHERE c.n > coalesce(r.n, 0)
ORDER BY x
""".strip()


def preempting_steps(scope: Scope) -> str:
    """Returns in how many steps somebody was preempted."""
    return f"""
SELECT count(*) FILTER (num_preempted > 0) AS num_steps FROM steps WHERE {scope.where()}
""".strip()


def token_work(scope: Scope, length_ns: int) -> str:
    """Returns what the scheduled tokens of each bin were good for."""
    number = bin_of(length_ns)
    return f"""
SELECT {x_of_bin(scope, length_ns, number)} AS x,
       sum(num_useful_prefill_tokens + num_useful_decode_tokens)::BIGINT AS useful,
       sum(num_recomputed_tokens)::BIGINT AS recomputed,
       sum(num_rejected_draft_tokens)::BIGINT AS rejected,
       sum(num_padding_tokens)::BIGINT AS padding
FROM token_work
WHERE {scope.where()}
GROUP BY ALL ORDER BY x
""".strip()
