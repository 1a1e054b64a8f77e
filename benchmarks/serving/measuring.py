"""One round of a load on one side: how fast the tokens came, and what they cost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.serving.loads import Load
from engine.workload.client import RequestResult

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class DifferentWorkError(RuntimeError):
    """A side that did not do what was asked: its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round gave.

    Attributes:
        num_tokens: outputs, of all requests.
        seconds: from the first request to the last answer.
        cpu_seconds: of the side's processes meanwhile.
        ttft_seconds: of each request.
        itl_seconds: gaps between the pieces of each stream.
    """

    num_tokens: int
    seconds: float
    cpu_seconds: float
    ttft_seconds: Sequence[float]
    itl_seconds: Sequence[float]

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def cpu_ms_per_token(self) -> float:
        return 1000 * self.cpu_seconds / self.num_tokens

    def check(self, load: Load, side: str) -> None:
        """Makes sure that all that was asked for was done.

        Raises:
            DifferentWorkError: it was not.
        """
        wanted = load.num_requests * load.max_tokens
        if self.num_tokens != wanted:
            raise DifferentWorkError(
                f"{side} gave {self.num_tokens:,} tokens at concurrency {load.concurrency} where "
                f"{wanted:,} were asked for"
            )


def round_of(
    results: Sequence[RequestResult], *, seconds: float, cpu_seconds: float, side: str
) -> Round:
    """Returns a round by its requests.

    Raises:
        DifferentWorkError: one of them failed.
    """
    failures = sorted({result.failure for result in results if result.failure is not None})
    if failures:
        raise DifferentWorkError(f"requests to {side} failed: {'; '.join(failures)}")
    return Round(
        num_tokens=sum(result.num_output_tokens for result in results),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        ttft_seconds=[result.ttft_seconds or 0.0 for result in results],
        itl_seconds=[gap for result in results for gap in result.itl_seconds],
    )


def cpu_seconds(pids: Sequence[int]) -> float:
    """Returns the CPU that processes have used so far, all their threads; 0 for those ended."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / CLOCK_TICKS


def percentile_ms(seconds: Sequence[float], percent: float) -> float | None:
    """Returns a percentile in ms; None where nothing was measured."""
    return 1000 * float(np.percentile(seconds, percent)) if len(seconds) else None
