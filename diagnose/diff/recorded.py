"""The quantities of a side whose steps are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from diagnose.diff.noise import Floats, Ints, Measured, Percentile, Ratio, summed
from diagnose.diff.side import NUM_STRETCHES, Side
from diagnose.reading import read_rows

STEPS_SQL = """
SELECT {stretch} AS stretch, sum(num_repeats)::DOUBLE AS num_steps,
       sum(num_repeats * num_running::DOUBLE) AS running,
       sum(num_repeats * num_waiting::DOUBLE) AS waiting,
       sum(num_repeats * (num_running::DOUBLE + num_waiting)) AS in_flight,
       sum(num_repeats * (num_blocks_running::DOUBLE + num_blocks_waiting)) AS used,
       sum(num_repeats * num_blocks_waiting::DOUBLE) AS held,
       sum(num_preempted)::DOUBLE AS preempted,
       sum(num_scheduled_tokens)::DOUBLE AS tokens,
       sum(updated_ts - ts)::DOUBLE AS step_ns, count(updated_ts)::DOUBLE AS timed,
       sum(num_prefix_hit_tokens)::DOUBLE AS hits,
       sum(num_prefix_hit_tokens)::DOUBLE + sum(num_prefill_tokens) AS looked_up
FROM steps WHERE {where} GROUP BY stretch
"""
WORK_SQL = """
SELECT {stretch} AS stretch, sum(num_scheduled_tokens)::DOUBLE AS scheduled,
       sum(num_useful_prefill_tokens)::DOUBLE AS prefill,
       sum(num_useful_decode_tokens)::DOUBLE AS decode,
       sum(num_recomputed_tokens)::DOUBLE AS recomputed,
       sum(num_rejected_draft_tokens)::DOUBLE AS rejected,
       sum(num_padding_tokens)::DOUBLE AS padding
FROM token_work WHERE {where} GROUP BY stretch
"""
REASONS_SQL = """
SELECT {stretch} AS stretch, coalesce(wait_reason, 'unknown reason') AS reason,
       sum(num_repeats * num_requests::DOUBLE) AS waiting
FROM queue_by_reason_between({start}, {end}) WHERE engine = {engine} GROUP BY ALL
"""
ARRIVALS_SQL = """
SELECT {stretch} AS stretch, count(*)::DOUBLE AS arrived,
       count(*) FILTER (adapter IS NOT NULL)::DOUBLE AS with_adapter,
       count(*) FILTER (priority <> 0)::DOUBLE AS with_priority
FROM request_arrivals WHERE {where} GROUP BY stretch
"""
PROMPTS_SQL = """
SELECT num_prompt_tokens::DOUBLE AS prompt FROM request_arrivals WHERE {where} ORDER BY seq
"""
ENDED_SQL = """
SELECT {ended} AS stretch, num_output_tokens::DOUBLE AS output, num_preemptions::DOUBLE AS times,
       queue_ns::DOUBLE AS queue, ttft_ns::DOUBLE AS first_token, mean_itl_ns::DOUBLE AS itl,
       max_itl_ns::DOUBLE AS pause, e2e_ns::DOUBLE AS e2e
FROM requests WHERE engine = {engine} AND finished_ts BETWEEN {start} AND {end}
ORDER BY ts, request
"""

WORK = {
    "useful prefill": "prefill",
    "useful decode": "decode",
    "recomputed": "recomputed",
    "rejected drafts": "rejected",
    "padding": "padding",
}
TIMES = {
    "queued": "queue",
    "time to first token": "first_token",
    "between tokens, mean of a request": "itl",
    "longest pause in an answer": "pause",
    "end to end": "e2e",
}
PERCENTILES = (0.5, 0.95)
REASON = "waiting: "
"""How the quantities begin that tell one reason."""


class Recorded:
    """Reads a side once and hands out its quantities by name; None is not measured."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._steps = _by_stretch(self._rows(STEPS_SQL))
        self._work = _by_stretch(self._rows(WORK_SQL))
        self._arrivals = _by_stretch(self._rows(ARRIVALS_SQL))
        self._ended = self._rows(ENDED_SQL)
        self._prompts = self._rows(PROMPTS_SQL)
        self._reasons = self._rows(REASONS_SQL)

    def _rows(self, template: str) -> list[dict[str, Any]]:
        scope = self._side.scope
        sql = template.format(
            stretch=self._side.stretch_sql(),
            ended=self._side.stretch_sql("finished_ts"),
            where=scope.where(),
            engine=scope.engine,
            start=scope.start_ts,
            end=scope.end_ts,
        )
        return read_rows(self._side.log, sql.strip())

    def quantities(self) -> dict[tuple[str, str, str], Measured | None]:
        """Returns every quantity by group, name and unit."""
        return {
            **self._preemptions(),
            **self._token_work(),
            **self._waiting(),
            **self._latencies(),
            **self._throughput(),
            **self._memory(),
            **self._traffic(),
        }

    # ----------------------------------------------------------------------------------- by group

    def _preemptions(self) -> dict[tuple[str, str, str], Measured | None]:
        times, stretches = self._values("times")
        per_request = None
        if len(times):
            per_request = Ratio(summed(stretches, times), summed(stretches), len(times))
        return {
            ("preemptions", "preemptions per second", "1/s"): self._rate("preempted"),
            ("preemptions", "preemptions per finished request", ""): per_request,
        }

    def _token_work(self) -> dict[tuple[str, str, str], Measured | None]:
        return {
            ("token work", f"{name}, of scheduled tokens", "ratio"): _ratio(
                self._work, column, "scheduled"
            )
            for name, column in WORK.items()
        }

    def _waiting(self) -> dict[tuple[str, str, str], Measured | None]:
        told: dict[tuple[str, str, str], Measured | None] = {
            ("waiting", "waiting requests", "requests"): self._mean("waiting")
        }
        for reason in sorted({row["reason"] for row in self._reasons}):
            own = [row for row in self._reasons if row["reason"] == reason]
            above = _column(_by_stretch(own), "waiting")
            steps = _column(self._steps, "num_steps")
            told["waiting", f"{REASON}{reason}", "requests"] = Ratio(above, steps, int(steps.sum()))
        return told

    def _latencies(self) -> dict[tuple[str, str, str], Measured | None]:
        told: dict[tuple[str, str, str], Measured | None] = {}
        for name, column in TIMES.items():
            values, stretches = self._values(column)
            for share in PERCENTILES:
                measured = Percentile(values, stretches, share) if len(values) else None
                told["latency", f"{name}, p{100 * share:.0f}", "ns"] = measured
        told["latency", "step, mean", "ns"] = _ratio(self._steps, "step_ns", "timed")
        return told

    def _throughput(self) -> dict[tuple[str, str, str], Measured | None]:
        outputs, _ = self._values("output")
        counted = self._when_ended([row["output"] or 0.0 for row in self._ended])
        ended = self._when_ended([1.0] * len(self._ended))
        known = bool(self._steps or self._ended)
        name = "output tokens per second (of ended)"
        return {
            ("throughput", name, "1/s"): self._per_second(counted, int(outputs.sum()))
            if known
            else None,
            ("throughput", "requests ended per second", "1/s"): self._per_second(
                ended, int(ended.sum())
            )
            if known
            else None,
            ("throughput", "scheduled tokens per second", "1/s"): self._rate("tokens"),
        }

    def _memory(self) -> dict[tuple[str, str, str], Measured | None]:
        pool = self._side.diagnosis.settings.num_usable_blocks
        return {
            ("memory", "KV blocks in use, of the pool", "ratio"): self._mean("used", pool),
            ("memory", "KV blocks held by waiting, of the pool", "ratio"): self._mean("held", pool),
        }

    def _traffic(self) -> dict[tuple[str, str, str], Measured | None]:
        told: dict[tuple[str, str, str], Measured | None] = {
            ("traffic", "arrivals per second", "1/s"): self._per_second(
                _column(self._arrivals, "arrived"), len(self._prompts)
            )
            if self._prompts
            else None,
            ("traffic", "requests in the engine", "requests"): self._mean("in_flight"),
            ("traffic", "running requests", "requests"): self._mean("running"),
        }
        prompts = _values(self._prompts, "prompt")
        outputs = self._values("output")
        for name, (values, stretches) in {"prompt": prompts, "output": outputs}.items():
            for share in PERCENTILES:
                measured = Percentile(values, stretches, share) if len(values) else None
                told["traffic", f"{name} tokens, p{100 * share:.0f}", "tokens"] = measured
        shares = {"with an adapter": "with_adapter", "with a priority": "with_priority"}
        for name, column in shares.items():
            told["traffic", f"requests {name}", "ratio"] = _ratio(self._arrivals, column, "arrived")
        hits = _ratio(self._steps, "hits", "looked_up")
        told["traffic", "prompt tokens found in the prefix cache", "ratio"] = hits
        return told

    # ------------------------------------------------------------------------------------- shapes

    def _values(self, column: str) -> tuple[Floats, Ints]:
        return _values(self._ended, column)

    def _when_ended(self, weights: list[float]) -> Floats:
        """Returns sums over the requests that ended in each stretch of time."""
        places = np.array([_place(row["stretch"]) for row in self._ended], dtype=np.int64)
        return summed(places, np.array(weights, dtype=np.float64))

    def _mean(self, column: str, of: int | None = 1) -> Measured | None:
        """Returns the mean of a state over the steps, as a share of `of`."""
        if not of or any(row[column] is None for row in self._steps.values()) or not self._steps:
            return None
        steps = _column(self._steps, "num_steps")
        return Ratio(_column(self._steps, column) / of, steps, int(steps.sum()))

    def _rate(self, column: str) -> Measured | None:
        if any(row[column] is None for row in self._steps.values()) or not self._steps:
            return None
        counts = _column(self._steps, column)
        return self._per_second(counts, int(counts.sum()))

    def _per_second(self, counts: Floats, n: int) -> Measured:
        seconds = np.full(NUM_STRETCHES, self._side.seconds / NUM_STRETCHES)
        return Ratio(counts, seconds, n, is_count=True)


def is_reason(name: tuple[str, str, str]) -> bool:
    """Returns whether a quantity counts those that wait for one reason."""
    return name[1].startswith(REASON)


def waits_for_nothing(side: Side) -> Measured | None:
    """Returns a reason for which nobody waited on this side: 0 where steps are recorded."""
    steps = side.diagnosis.steps
    if side.diagnosis.metrics is not None or not steps.num_steps or steps.max_waiting is None:
        return None
    each = np.full(NUM_STRETCHES, steps.num_steps / NUM_STRETCHES)
    return Ratio(np.zeros(NUM_STRETCHES), each, steps.num_steps)


Stretches = dict[int, dict[str, Any]]
"""Rows by the number of their stretch."""


def _place(stretch: int) -> int:
    return min(max(int(stretch), 0), NUM_STRETCHES - 1)


def _by_stretch(rows: Sequence[dict[str, Any]]) -> Stretches:
    return {_place(row["stretch"]): row for row in rows}


def _column(rows: Stretches, name: str) -> Floats:
    """Returns a column of sums, a stretch each; a stretch without a row had none of it."""
    return np.array(
        [float(rows.get(number, {}).get(name) or 0.0) for number in range(NUM_STRETCHES)]
    )


def _ratio(rows: Stretches, above: str, below: str) -> Measured | None:
    """Returns a sum over a sum; None where a stretch does not have it."""
    if not rows or any(row[above] is None or row[below] is None for row in rows.values()):
        return None
    counted = _column(rows, below)
    return Ratio(_column(rows, above), counted, int(counted.sum())) if counted.any() else None


def _values(rows: Sequence[dict[str, Any]], column: str) -> tuple[Floats, Ints]:
    """Returns what is measured of a column, in order, and its stretches of equally many rows."""
    known = np.array([row[column] for row in rows if row[column] is not None], dtype=np.float64)
    return known, np.arange(len(known), dtype=np.int64) * NUM_STRETCHES // max(len(known), 1)
