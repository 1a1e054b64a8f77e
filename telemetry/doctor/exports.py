"""What the collector exports, and whether its receivers take it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from telemetry.doctor.check import Check, count_text, seconds_text
from telemetry.exporters.status import SignalStatus, read_status
from telemetry.store.presence import CollectorNotice


def export_checks(log: Path, notice: CollectorNotice | None) -> Iterator[Check]:
    """Yields a check for the metrics page, each signal and each setting that was not followed."""
    status = None if notice is None else read_status(log, notice.pid)
    if status is None:
        return
    if status.metrics_url is not None:
        yield Check("good", "metrics page", status.metrics_url)
    for signal in status.signals:
        yield _signal(signal)
    for problem in status.problems:
        yield Check("warn", "not exported", problem)


def _signal(signal: SignalStatus) -> Check:
    what = "spans" if signal.signal == "traces" else "pushes"
    text = f"{count_text(signal.num_sent)} {what} to {signal.endpoint} ({signal.protocol})"
    if signal.last_sent_ts is not None:
        text += f", the last {seconds_text(time.time_ns() - signal.last_sent_ts)} ago"
    if signal.num_failures:
        text += f", {count_text(signal.num_failures)} message(s) not taken"
    if signal.num_passed_over:
        text += f", {count_text(signal.num_passed_over)} requests passed over"
    if signal.error is not None:
        return Check("bad", signal.signal, f"{text}: {signal.error}")
    return Check("warn" if signal.num_passed_over else "good", signal.signal, text)
