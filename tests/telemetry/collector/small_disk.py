"""A collector whose disk gets full: `python -m tests.telemetry.collector.small_disk FOLDER`.

Runs in a mount namespace of its own, with a small tmpfs for the log; says what it saw as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from telemetry.collector import find_collector
from telemetry.doctor import examine
from telemetry.store.collector_status import CollectorStatus, ask_status
from telemetry.vocabulary import EventKind
from tests.telemetry.collector.builders import (
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.collector.test_kills import check_exactly_once

DISK_BYTES = 8 << 20


def main() -> None:
    """Fills the disk under a collector, and makes room again."""
    folder = Path(sys.argv[1])
    log = folder / "disk" / "log"
    log.parent.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(log.parent)], check=True
    )
    ring = ring_for(folder / "log", ring_bytes=4 << 20, bound=False)
    prologue = f"os.environ['STEPSCOPE_RING_DIR'] = {str(ring.path.parent)!r}"
    with collector_process(log, prologue=prologue) as process:
        wait_for_collector(log)
        record(ring, 0, 50)
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(50,)])
        filler = fill(log.parent)
        record(ring, 50, 100)
        outage = wait_until(lambda: outage_of(log))
        told = [(check.level, check.name, check.text) for check in examine(log).checks]
        filler.unlink()
        record(ring, 100, 150)
        wait_until(lambda: outage_of(log) is None)
        wait_until(lambda: num_steps(log) == 150, seconds=60)
        is_same = process.poll() is None
    ring.close()
    check_exactly_once(log, 150)
    notes = rows(
        log, f"SELECT text FROM request_events WHERE kind = {EventKind.recorder_degraded:d}"
    )
    print(json.dumps({"outage": outage, "doctor": told, "same": is_same, "notes": notes}))


def fill(disk: Path) -> Path:
    """Writes a file until nothing more fits."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def status(log: Path) -> CollectorStatus | None:
    notice = find_collector(log)
    return None if notice is None else ask_status(notice)


def outage_of(log: Path) -> str | None:
    found = status(log)
    return None if found is None else found.outage


def num_steps(log: Path) -> Any:
    try:
        return rows(log, "SELECT count(*) FROM steps")[0][0]
    except ValueError:  # it is being opened
        return None


if __name__ == "__main__":
    main()
