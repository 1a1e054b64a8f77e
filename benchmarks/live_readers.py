"""A live log under readers: how far the collector is behind, and whether anything is dropped.

    python -m benchmarks.live_readers --minutes 10

An engine without a model runs preemption storms at full speed with full detail. The dashboard's
overview is drawn again and again, and a loop asks the log, as one does in an incident. Twice a
second the newest step in the log is compared with the newest in the ring. Goals: behind by less
than a second, nothing dropped, no reader's error. The collector's memory is told.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from streamlit.testing.v1 import AppTest

from benchmarks.crash_matrix import Engine, wait_until
from dashboard.source import ROOT_VARIABLE
from telemetry.collector import find_collector, start_collector, stop_collector
from telemetry.ring import RingReader
from telemetry.store import Log, open_log

GOAL_SECONDS = 1.0
QUERY = (
    "SELECT cause, count(*) AS n FROM preemptions GROUP BY cause UNION ALL "
    "SELECT -1, count(*) FROM step_requests WHERE num_scheduled_tokens > 0"
)


def overview() -> None:
    """The dashboard's first page, as Streamlit runs it."""
    from dashboard import app

    app.show_overview()


class QueryLoop(threading.Thread):
    """Asks again and again."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log
        self.done = threading.Event()
        self.num_answers = 0
        self.errors: list[str] = []

    def run(self) -> None:
        """Asks until it is done."""
        with open_log(self._log) as opened:
            while not self.done.wait(0.05):
                try:
                    opened.query(QUERY)
                    self.num_answers += 1
                except ValueError as error:
                    self.errors.append(str(error))


class LagWatch(threading.Thread):
    """Looks how far the log is behind the ring, in seconds on the engine's clock."""

    def __init__(self, log: Path, ring: RingReader) -> None:
        super().__init__()
        self._log, self._ring = log, ring
        self.done = threading.Event()
        self.seconds: list[float] = []

    def run(self) -> None:
        """Looks until it is done."""
        word = self._ring.word
        with open_log(self._log) as opened:
            while not self.done.wait(0.5):
                now = word("wall_anchor_ns") + time.monotonic_ns() - word("monotonic_anchor_ns")
                newest = one(opened, "SELECT max(ts) AS n FROM steps")
                if newest is not None:
                    self.seconds.append((now - newest) / 1e9)


def memory_mib(log: Path) -> tuple[int, int]:
    """Returns the memory of the log's collector: what is resident, and the most that was."""
    notice = find_collector(log)
    assert notice is not None
    lines = Path(f"/proc/{notice.pid}/status").read_text().splitlines()
    kib = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(kib["VmRSS"]) >> 10, int(kib["VmHWM"]) >> 10


def one(log: Log, sql: str) -> int | None:
    """Returns the one number that a statement gives."""
    value = log.query(sql).to_pylist()[0]["n"]
    return None if value is None else int(value)


def main() -> int:
    """Prints what was seen; exit code 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--step-seconds",
        type=float,
        default=0.0,
        help="time that a model would take for each step (default 0: the scheduler's own limit)",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-readers-") as folder:
        log = Path(folder) / "log"
        os.environ["STEPSCOPE_RING_DIR"] = str(Path(folder) / "rings")
        os.environ[ROOT_VARIABLE] = str(log)
        start_collector(log, detail="full")
        engine = Engine(log, "--step-seconds", str(args.step_seconds))
        try:
            return watch(log, args.minutes * 60)
        finally:
            engine.kill()
            stop_collector(log)


def watch(log: Path, seconds: float) -> int:
    """Reads for so long and says what came of it."""
    ring = RingReader(wait_until(lambda: list((log.parent / "rings").glob("*.ring")))[0])
    loop, lag = QueryLoop(log), LagWatch(log, ring)
    threads = (loop, lag)
    for thread in threads:
        thread.start()
    page = AppTest.from_function(overview, default_timeout=120)
    deadline, num_pages, errors = time.monotonic() + seconds, 0, 0
    while time.monotonic() < deadline:
        page.run()
        num_pages, errors = num_pages + 1, errors + len(page.exception)
        time.sleep(1.0)
    for thread in threads:
        thread.done.set()
        thread.join()
    with open_log(log) as opened:
        num_steps = one(opened, "SELECT count(*) AS n FROM steps")
        num_dense = one(opened, "SELECT count(*) AS n FROM step_requests")
        dropped = one(
            opened,
            "SELECT count(*) AS n FROM request_events WHERE kind = event_kind('records_dropped')",
        )
    resident, peak = memory_mib(log)
    p50, p99, most = np.percentile(lag.seconds, [50, 99, 100])
    print(f"{seconds:,.0f} s, {num_steps:,} steps, {num_dense:,} dense rows in the log")
    print(f"pages drawn {num_pages:,}, queries answered {loop.num_answers:,}")
    print(f"errors of pages {errors}, of queries {len(loop.errors)}; drops {dropped}")
    print(f"behind by {p50:.2f} s (p50), {p99:.2f} s (p99), {most:.2f} s (most)")
    print(f"the collector holds {resident:,} MiB, {peak:,} MiB at its peak")
    met = most < GOAL_SECONDS and not dropped and not errors and not loop.errors
    print(f"goal: under {GOAL_SECONDS:g} s, nothing dropped: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
