"""What vLLM's iteration lines tell of recomputation: more output tokens than requests in a step.

With `--enable-logging-iteration-details` vLLM prints a line a step. A request that has given output
gets one token a step, unless it speculates; one that was preempted is computed again in chunks, and
vLLM still calls that generation. The surplus is therefore recomputation, less one token for each
chunk. It is inferred, and a lower bound; how many preemptions it was no line says.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.rule import Context

SQL = """
WITH steps AS (
    SELECT ts, max(value) FILTER (metric = 'log:iteration_context_tokens') AS prompts,
           max(value) FILTER (metric = 'log:iteration_generation_requests') AS requests,
           max(value) FILTER (metric = 'log:iteration_generation_tokens') AS outputs,
           max(value) FILTER (metric = 'log:iteration_kv_cache_usage') AS used
    FROM samples
    WHERE {where} AND source = 'vllm-log' AND metric IN (
        'log:iteration_context_tokens', 'log:iteration_generation_requests',
        'log:iteration_generation_tokens', 'log:iteration_kv_cache_usage')
    GROUP BY ts
)
SELECT count(*) AS num_lines,
       count(*) FILTER (outputs > requests) AS num_surplus_lines,
       coalesce(sum(outputs - requests) FILTER (outputs > requests), 0)::BIGINT AS num_recomputed,
       coalesce(sum(prompts + outputs), 0)::BIGINT AS num_scheduled,
       max(used) FILTER (outputs > requests) AS used,
       min(ts) FILTER (outputs > requests) AS opened_ts,
       max(ts) FILTER (outputs > requests) AS last_ts,
       max(ts) AS until_ts
FROM steps WHERE requests IS NOT NULL AND outputs IS NOT NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationLines:
    """Recomputation that lines of steps show. `used` is the highest KV usage in those steps."""

    num_lines: int
    num_surplus_lines: int
    num_recomputed: int
    num_scheduled: int
    used: float | None
    opened_ts: int | None
    last_ts: int | None
    until_ts: int | None
    sql: str

    @property
    def recomputed_ratio(self) -> float:
        """Share of the scheduled tokens that had been computed before."""
        return self.num_recomputed / max(self.num_scheduled, 1)


def read_iteration_lines(context: Context) -> IterationLines | None:
    """Returns what the lines show; `None` without such lines, or where drafts explain them."""
    if context.settings.num_speculative_tokens:
        return None
    row = context.row(SQL)
    return IterationLines(**row, sql=context.scope.fill(SQL)) if row["num_lines"] else None
