"""Step logs, rings and collectors that tests start and end themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from telemetry.collector import Collector, find_collector
from telemetry.records import RunClock
from telemetry.ring import RingRecorder
from telemetry.store import open_log
from tests.telemetry.ring.builders import dense, events, step

MIB = 1 << 20
RINGS = "engine_rings"


def ring_for(
    log: Path, *, ring_bytes: int = MIB, bound: bool = True, clock: RunClock | None = None
) -> RingRecorder:
    return RingRecorder(
        log.parent / RINGS,
        clock or RunClock.start(),
        log=log if bound else None,
        ring_bytes=ring_bytes,
    )


def record(ring: RingRecorder, first: int, last: int, num_dense: int = 2) -> None:
    """Records steps [first, last), each with four events."""
    clock = ring._clock
    for number in range(first, last):
        now = clock.now()
        ring.enter_phase(number, 5)  # type: ignore[arg-type]
        ring.record_step(step(number, now), events(number, now), dense(number, num_dense))
        ring.count_preemptions(number + 1)


def collect(log: Path, **settings: Any) -> None:
    """Drains once, in this process."""
    with collecting(log, **settings) as collector:
        collector.drain()


@contextmanager
def collecting(log: Path, **settings: Any) -> Iterator[Collector]:
    """An open collector in this process, without its loop."""
    with Collector(log, directories=[log.parent / RINGS], **settings) as collector:
        collector.open()
        yield collector


def rows(log: Path, sql: str, params: Any = None) -> list[tuple[Any, ...]]:
    with open_log(log) as opened:
        table = opened.query(sql, params)
    return [tuple(row.values()) for row in table.to_pylist()]


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(0.02)
    return found


@contextmanager
def collector_process(
    log: Path, *, detail: str = "full", linger: float = 600.0, prologue: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """A collector as a process of its own; `prologue` is code that it runs first."""
    code = (
        "import sys, os, signal\nfrom pathlib import Path\n"
        f"{prologue}\n"
        "from telemetry.collector.__main__ import run\n"
        f"sys.exit(run(Path({str(log)!r}), linger_seconds={linger}, detail={detail!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "STEPSCOPE_RING_DIR": str(log.parent / RINGS)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


def wait_for_collector(log: Path) -> None:
    wait_until(lambda: find_collector(log))
