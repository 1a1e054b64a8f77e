"""The analyst beside the collector: whether it lives, and how far behind it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from telemetry.doctor.check import Check, Level, count_text, seconds_text
from telemetry.rendering import printable
from telemetry.store.analyst_status import AnalystStatus, has_analyst, read_analyst
from telemetry.store.presence import CollectorNotice

LATE_PERIODS = 3
"""An evaluation that is so many periods overdue will not come by itself."""


def analyst_checks(log: Path, notice: CollectorNotice | None) -> Iterator[Check]:
    """Yields how findings are followed; nothing for a log that nobody collects."""
    if notice is None:
        return
    status = read_analyst(log)
    if status is not None:
        yield _living(status)
    elif has_analyst(log):
        yield Check("good", "analyst", "starting")
    else:
        text = "none: findings are not followed, `stepscope diagnose` finds them all the same"
        yield Check("unknown", "analyst", text)


def _living(status: AnalystStatus) -> Check:
    every = f"every {status.every_seconds:,.0f} s"
    if status.evaluated_ts is None or status.took_seconds is None:
        text = f"pid {status.pid}, no evaluation yet"
        return _failed(status, text) if status.error else Check("good", "analyst", text)
    age_ns = time.time_ns() - status.evaluated_ts
    text = (
        f"pid {status.pid}, {count_text(status.num_evaluations)} evaluations, the last "
        f"{seconds_text(age_ns)} ago; {every}, taking {status.took_seconds:.2f} s; "
        f"{count_text(status.num_open)} finding(s) open"
    )
    if status.error is not None:
        return _failed(status, text)
    if age_ns / 1e9 > LATE_PERIODS * status.every_seconds:
        return Check("bad", "analyst", f"{text}: it does not get on")
    level: Level = "warn" if status.is_stretched else "good"
    if status.is_stretched:
        text += f", too long for one every {status.period_seconds:,.0f} s"
    return Check(level, "analyst", text)


def _failed(status: AnalystStatus, text: str) -> Check:
    return Check("bad", "analyst", f"{text}; it failed with: {printable(status.error or '')}")
