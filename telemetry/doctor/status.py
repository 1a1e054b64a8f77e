"""What a live collector says: a log that takes no rows, rings it cannot read, its sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from telemetry.doctor.check import Check
from telemetry.rendering import printable
from telemetry.store.collector_status import ask_status
from telemetry.store.presence import find_collector


def status_checks(log: Path) -> Iterator[Check]:
    """Yields a check for each trouble and each source; nothing without a collector to ask."""
    notice = find_collector(log)
    status = None if notice is None else ask_status(notice)
    if status is None:
        return
    if status.outage is not None:
        remedy = "the rings keep the newest records; make room, and it goes on by itself"
        yield Check("bad", "writing", f"{status.outage}; {remedy}")
    for ring in status.left_alone:
        yield Check("bad", "ring left alone", f"{ring.path}: {ring.reason}")
    for source in status.sources:
        yield Check("good" if source.is_well else "warn", "source", printable(source.text))
