"""The CPU of a collector, as the process that users run, with engines that step on time.

CPU is user and system time of the whole process as the kernel counts it, over wall time: 1.0 is one
core. Engines run in a process of their own, on the same cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.storing.engines import Course
from telemetry.store import open_log
from telemetry.store.presence import find_collector

WARM_SECONDS = 3.0
_LOOKING_SECONDS = 4.0
"""The engines run so much longer than the CPU is measured: long enough to look at the lag."""
_PATIENCE_SECONDS = 60.0
_NUM_LOOKS = 5
_LOOK_SECONDS = 0.17
"""No part of the collector's 250 ms, so that looks fall anywhere between two drains."""
_LAG = (
    "SELECT epoch_ns(now()) - min(newest) AS lag "
    "FROM (SELECT max(ts) AS newest FROM steps GROUP BY engine)"
)
_LOST = (
    "SELECT coalesce(sum(last_lost - first_lost + 1), 0)::BIGINT AS num FROM request_events "
    "WHERE kind = event_kind('records_dropped')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a collector took with so many engines."""

    num_engines: int
    core_ratio: float
    """CPU of the collector, in cores."""
    dense_rows_per_second: float
    """That the engines wrote."""
    writer_core_ratio: float
    """CPU of the engines' process."""
    latest_step_seconds: float
    lag_seconds: float
    """How old the newest step of the furthest behind engine was, at worst, in queries of the live
    log when the time was over and the engines still ran."""
    num_lost: int
    num_steps_written: int
    num_steps_stored: int

    @property
    def is_complete(self) -> bool:
        """Whether every step is in the log."""
        return self.num_lost == 0 and self.num_steps_stored == self.num_steps_written


def measure(
    directory: Path,
    *,
    num_engines: int,
    seconds: float,
    rate: float,
    num_requests: int,
    shared_memory: Path,
) -> Load:
    """Returns what a collector took while engines ran for `seconds`, after a time to get warm.

    `directory` gets the log, `shared_memory` the rings.
    """
    log, rings = directory / "log", shared_memory / "rings"
    rings.mkdir(parents=True)
    with _collector(log, rings) as collector:
        with _engines(log, rings, num_engines, seconds, rate, num_requests) as engines:
            _wait("engines did not start", lambda: len(list(rings.glob("*.ring"))) == num_engines)
            time.sleep(WARM_SECONDS)
            cpu, wall = cpu_seconds(collector.pid), time.monotonic()
            time.sleep(max(seconds - WARM_SECONDS - _LOOKING_SECONDS, 0.5))
            cores = (cpu_seconds(collector.pid) - cpu) / (time.monotonic() - wall)
            lag = _lag_seconds(log)
            course = Course(**json.loads(engines.communicate()[0]))
        # The collector removes a ring after its last row.
        _wait("rings were not drained", lambda: not any(rings.glob("*.ring")))
    with open_log(log) as opened:
        (lost,) = opened.query(_LOST).to_pylist()
        (stored,) = opened.query("SELECT count(*) AS num FROM steps").to_pylist()
    return Load(
        num_engines=num_engines,
        core_ratio=cores,
        dense_rows_per_second=course.num_steps * num_requests / course.seconds,
        writer_core_ratio=course.cpu_seconds / course.seconds,
        latest_step_seconds=course.latest_seconds,
        lag_seconds=lag,
        num_lost=lost["num"],
        num_steps_written=course.num_steps,
        num_steps_stored=stored["num"],
    )


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of a process and its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _collector(log: Path, rings: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "telemetry.collector", "--log", str(log)]
    process = subprocess.Popen(
        [*command, "--linger", "inf", "--detail", "full"],
        env={**os.environ, "STEPSCOPE_RING_DIR": str(rings)},
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        _wait("the collector did not start", lambda: find_collector(log) is not None)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=_PATIENCE_SECONDS)


@contextmanager
def _engines(
    log: Path, rings: Path, num: int, seconds: float, rate: float, num_requests: int
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.storing.engines", "--log", str(log)]
    options = {
        "rings": rings,
        "engines": num,
        "seconds": seconds,
        "rate": rate,
        "requests": num_requests,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(timeout=_PATIENCE_SECONDS)


def _lag_seconds(log: Path) -> float:
    with open_log(log) as opened:

        def look() -> float | None:
            (found,) = opened.query(_LAG).to_pylist()
            return None if found["lag"] is None else float(found["lag"]) / 1e9

        _wait("no step was stored", lambda: look() is not None)
        lags = []
        for _ in range(_NUM_LOOKS):
            lags.append(look() or 0.0)
            time.sleep(_LOOK_SECONDS)
    return max(lags)


def _wait(complaint: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{complaint} in {_PATIENCE_SECONDS:g} s")
        time.sleep(0.05)
