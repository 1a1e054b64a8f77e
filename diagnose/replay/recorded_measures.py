"""What was measured in a recorded stretch, in the quantities that a replay is compared by."""

from __future__ import annotations

from diagnose.reading import QueryLog, Scope, read_row, read_rows
from diagnose.replay.measures import Measures
from telemetry.vocabulary import FinishReason

_PREEMPTIONS = """
SELECT cause, count(*) AS num, sum(num_computed_tokens_lost)::BIGINT AS num_lost,
  sum(num_tokens_recomputed)::BIGINT AS num_recomputed
FROM preemptions WHERE {where} GROUP BY cause ORDER BY cause
"""
_TIMES = f"""
WITH answered AS (
  SELECT f.*, f.queue_ns + f.prefill_ns AS ttft_ns, f.ts - a.ts AS e2e_ns
  FROM request_finishes f JOIN request_arrivals a USING (engine, request)
  WHERE f.engine = {{engine}} AND f.ts BETWEEN {{start}} AND {{end}} AND a.ts >= {{start}}
    AND a."session" IS NULL
    AND f.reason IN ({int(FinishReason.stop)}, {int(FinishReason.length)})
)
SELECT
  quantile_cont(queue_ns / 1e9, [0.5, 0.95]) AS queue,
  quantile_cont(ttft_ns / 1e9, [0.5, 0.95]) AS ttft,
  quantile_cont(mean_itl_ns / 1e9, [0.5, 0.95]) AS itl,
  quantile_cont(max_itl_ns / 1e9, [0.5, 0.95]) AS longest_pause,
  avg(e2e_ns / 1e9) AS e2e_mean
FROM answered
"""
_OUTPUTS = """
SELECT sum(num_output_tokens)::BIGINT AS num_output_tokens, max(ts) AS last_ts
FROM request_finishes WHERE {where}
"""


def measure(log: QueryLog, scope: Scope, num_outputs_before: int = 0) -> Measures:
    """Returns the quantities of a stretch.

    Args:
        num_outputs_before: outputs that requests ending in it had before it began.
    """
    preemptions = read_rows(log, scope.fill(_PREEMPTIONS))
    times = read_row(log, scope.fill(_TIMES))
    ends = read_row(log, scope.fill(_OUTPUTS))
    rate = None
    if ends["last_ts"] is not None and ends["last_ts"] > scope.start_ts:
        num_outputs = ends["num_output_tokens"] - num_outputs_before
        rate = num_outputs * 1e9 / (ends["last_ts"] - scope.start_ts)
    e2e_mean = times.pop("e2e_mean")
    pairs = {name: times[name] or [None, None] for name in times}
    return Measures(
        num_preemptions=sum(row["num"] for row in preemptions),
        num_tokens_lost=_total([row["num_lost"] for row in preemptions]),
        num_tokens_recomputed=_total([row["num_recomputed"] for row in preemptions]),
        queue_p50=pairs["queue"][0],
        queue_p95=pairs["queue"][1],
        ttft_p50=pairs["ttft"][0],
        ttft_p95=pairs["ttft"][1],
        itl_p50=pairs["itl"][0],
        itl_p95=pairs["itl"][1],
        longest_pause_p50=pairs["longest_pause"][0],
        longest_pause_p95=pairs["longest_pause"][1],
        e2e_mean=e2e_mean,
        output_tokens_per_second=rate,
        by_cause=tuple((row["cause"], row["num"]) for row in preemptions),
    )


def _total(values: list[int | None]) -> int | None:
    """Returns a sum; None if a part of it is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
