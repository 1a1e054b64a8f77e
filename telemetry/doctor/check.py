"""One thing that was looked at, and how numbers and times are written in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from telemetry.vocabulary import Phase

Level: TypeAlias = Literal["good", "warn", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    level: Level
    name: str
    text: str


def count_text(value: int | None) -> str:
    """Returns a count with commas."""
    return "–" if value is None else f"{value:,}"


def phase_text(code: int | None) -> str:
    """Returns the name of a phase."""
    return Phase(code).name if code in list(Phase) else "–"


def seconds_text(ns: int) -> str:
    """Returns a duration of nanoseconds in seconds."""
    return f"{max(ns, 0) / 1e9:,.2f} s"


def utc_text(ts: int) -> str:
    """Returns a time to the millisecond."""
    return datetime.fromtimestamp(ts / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
