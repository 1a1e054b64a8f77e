"""Bytes on disk of a dense row and of a step, of a log written as a collector writes it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.storing.engines import STEPS_PER_SECOND, SimulatedEngine
from telemetry.collector import Collector
from telemetry.records import RunClock
from telemetry.store.files import day_files, day_of

DAY = 1_764_374_400_000_000_000
"""2025-11-29 00:00 UTC, in ns since the Unix epoch: a day that is over."""
NS_PER_STEP = 1_000_000_000 // STEPS_PER_SECOND
STEPS_PER_FLUSH = 13
"""What 250 ms bring."""
GOAL_DENSE_BYTES = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a log weighs."""

    num_steps: int
    num_dense_rows: int
    main_bytes: int
    dense_bytes: int

    @property
    def bytes_per_step(self) -> float:
        """Of the main file: steps, events, arrivals and finishes, heartbeats."""
        return self.main_bytes / self.num_steps

    @property
    def bytes_per_dense_row(self) -> float:
        return self.dense_bytes / self.num_dense_rows


def write_log(directory: Path, *, num_steps: int, num_requests: int) -> Path:
    """Returns a closed log of one simulated engine, drained every 250 ms of its own time."""
    rings, log = directory / "rings", directory / "log"
    rings.mkdir(parents=True)
    # Its clock stands at the end: a ring with times to come is not believed.
    clock = RunClock(DAY, time.monotonic_ns() - num_steps * NS_PER_STEP)
    engine = SimulatedEngine(rings, log, clock=clock, num_requests=num_requests)
    with Collector(log, directories=[rings], detail="full") as collector:
        collector.open()
        for number in range(num_steps):
            engine.step(DAY + number * NS_PER_STEP)
            if number % STEPS_PER_FLUSH == STEPS_PER_FLUSH - 1:
                collector.drain()
        engine.close()
        collector.drain()
    for file in day_files(log):
        if file.day != day_of(DAY):  # today's, which the collector made and did not need
            file.path.unlink()
    shutil.rmtree(rings)
    return log


def measure(log: Path, *, num_steps: int, num_dense_rows: int) -> Sizes:
    """Returns what a log weighs."""
    sizes = {False: 0, True: 0}
    for file in day_files(log):
        sizes[file.dense] += file.path.stat().st_size
    return Sizes(
        num_steps=num_steps,
        num_dense_rows=num_dense_rows,
        main_bytes=sizes[False],
        dense_bytes=sizes[True],
    )
