"""Sums up a replay: latencies with their sample counts, throughput, failures with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.workload.client import RequestResult

SCHEMA_VERSION = 1
"""Version of the JSON that `load --json` prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Percentiles of a latency in seconds, over `num_samples` values."""

    num_samples: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Latency | None:
        """Returns the percentiles of what was measured; None where nothing was."""
        measured = np.array([value for value in values if value is not None], dtype=float)
        if not len(measured):
            return None
        p50, p95, p99 = (float(p) for p in np.percentile(measured, (50, 95, 99)))
        return cls(
            num_samples=len(measured),
            mean=float(measured.mean()),
            p50=p50,
            p95=p95,
            p99=p99,
            max=float(measured.max()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a replay brought. Latencies are of answered requests only.

    `ttft` send to first token, `itl` between two chunks of a stream, `tpot` a request's mean time
    a token after its first, `e2e` send to last token, `lateness` how late requests were sent.
    `num_refused` of those that failed were told to come again later.
    """

    num_requests: int
    num_answered: int
    num_refused: int
    duration_seconds: float
    num_prompt_tokens: int
    num_output_tokens: int
    ttft: Latency | None
    itl: Latency | None
    tpot: Latency | None
    e2e: Latency | None
    lateness: Latency | None
    failures: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, results: Sequence[RequestResult], *, duration_seconds: float) -> LoadReport:
        """Returns the report of a run that took `duration_seconds`."""
        answered = [result for result in results if result.failure is None]
        failures = Counter(result.failure for result in results if result.failure is not None)
        return cls(
            num_requests=len(results),
            num_answered=len(answered),
            num_refused=sum(result.is_refused for result in results),
            duration_seconds=duration_seconds,
            num_prompt_tokens=sum(result.num_prompt_tokens for result in answered),
            num_output_tokens=sum(result.num_output_tokens for result in answered),
            ttft=Latency.of(result.ttft_seconds for result in answered),
            itl=Latency.of(gap for result in answered for gap in result.itl_seconds),
            tpot=Latency.of(_tpot_seconds(result) for result in answered),
            e2e=Latency.of(result.e2e_seconds for result in answered),
            lateness=Latency.of(result.lateness_seconds for result in results),
            failures=tuple(failures.most_common()),
        )

    @property
    def is_complete(self) -> bool:
        """Whether every request was answered to its end."""
        return self.num_answered == self.num_requests

    @property
    def requests_per_second(self) -> float:
        """Answered requests a second of the run."""
        return self.num_answered / self.duration_seconds

    @property
    def output_tokens_per_second(self) -> float:
        """Output tokens of answered requests a second of the run."""
        return self.num_output_tokens / self.duration_seconds

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON; latencies in seconds."""
        body = asdict(self)
        body["failures"] = [
            {"reason": reason, "num_requests": count} for reason, count in self.failures
        ]
        return {
            "schema_version": SCHEMA_VERSION,
            **body,
            "requests_per_second": self.requests_per_second,
            "output_tokens_per_second": self.output_tokens_per_second,
        }


def _tpot_seconds(result: RequestResult) -> float | None:
    if result.ttft_seconds is None or result.e2e_seconds is None or result.num_output_tokens < 2:
        return None
    return (result.e2e_seconds - result.ttft_seconds) / (result.num_output_tokens - 1)
