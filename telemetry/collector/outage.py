"""A time in which the step log could not be written: told while it lasts, recorded afterwards."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from telemetry.collector.derive import COLLECTOR_SEQ
from telemetry.vocabulary import EventKind

_NUMBERS = 0xFF << 55
"""Keeps the numbers of these events apart from those of lost rows."""


@dataclass(slots=True)
class Outage:
    """Since when the log cannot be written, how often it was tried, and what it failed with."""

    begin_ns: int
    num_failures: int
    reason: str

    @property
    def text(self) -> str:
        """What is told of it."""
        seconds = (time.time_ns() - self.begin_ns) / 1e9
        return (
            f"the step log could not be written for {max(seconds, 0):,.1f} s, "
            f"failed attempts: {self.num_failures:,}, the last with: {self.reason}"
        )

    def row(self, engine: int, ts: int) -> dict[str, Any]:
        """Returns the event that an engine's record has of it, once it is over."""
        return {
            "engine": engine,
            "seq": COLLECTOR_SEQ | _NUMBERS | self.begin_ns // 1000,
            "ts": ts,
            "kind": int(EventKind.recorder_degraded),
            "text": self.text,
        }


def failed_again(outage: Outage | None, error: Exception) -> Outage:
    """Returns the outage with one more failure; a new one where there was none."""
    reason = str(error).strip().partition("\n")[0]
    if outage is None:
        return Outage(time.time_ns(), 1, reason)
    outage.num_failures += 1
    outage.reason = reason
    return outage
