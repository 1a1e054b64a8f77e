"""`kill -9` of the collector anywhere: every row is stored exactly once, in both files."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import pytest

from tests.telemetry.collector.builders import (
    collect,
    collector_process,
    record,
    ring_for,
    rows,
    wait_until,
)

_KILL_AT = """
from telemetry.store.writer import LogWriter
left = {nth}
def kill():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
original = LogWriter.{method}
def killing(self, *args, **kwargs):
    if {before}:
        kill()
    result = original(self, *args, **kwargs)
    if not {before}:
        kill()
    return result
LogWriter.{method} = killing
"""

POINTS = [
    ("write", True, 1),  # before the first transaction
    ("_commit", True, 1),  # inside the dense file's transaction
    ("_commit", False, 1),  # between the two files
    ("_commit", True, 2),  # inside the main file's transaction
    ("_commit", False, 2),  # after both, before the position moved in memory
    ("prepare", True, 2),  # at the beginning of a later flush
]


def check_exactly_once(log: Path, num_steps: int, num_dense: int = 2) -> None:
    steps = rows(log, "SELECT count(*), count(DISTINCT step), max(step) + 1 FROM steps")
    assert steps == [(num_steps, num_steps, num_steps)]
    events = rows(
        log,
        "SELECT count(*), count(DISTINCT seq), max(seq) + 1 FROM request_events "
        "WHERE kind != event_kind('recorder_degraded')",
    )
    assert events == [(4 * num_steps, 4 * num_steps, 4 * num_steps)]
    for table in ("request_arrivals", "request_finishes"):
        assert rows(log, f"SELECT count(*), count(DISTINCT step) FROM {table}") == [
            (num_steps, num_steps)
        ]
    dense = rows(log, "SELECT count(*), count(DISTINCT (step, slot)) FROM step_requests")
    assert dense == [(num_dense * num_steps, num_dense * num_steps)]


@pytest.mark.parametrize(("method", "before", "nth"), POINTS)
def test_killed_at(tmp_path: Path, method: str, before: bool, nth: int) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 10)
    collect(log, detail="full")
    record(ring, 10, 20)
    prologue = _KILL_AT.format(method=method, before=before, nth=nth)
    with collector_process(log, prologue=prologue) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    record(ring, 20, 30)
    collect(log, detail="full")
    check_exactly_once(log, 30)
    ring.close()


def test_killed_at_random_while_the_engine_writes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log, ring_bytes=16 << 20)
    chance = random.Random(11)
    done = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not done.is_set():
            record(ring, written, written + 5)
            written += 5
            done.wait(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            with collector_process(log) as process:
                kill_at = written + chance.randrange(150, 450)
                wait_until(lambda target=kill_at: written >= target)
                process.kill()
                process.wait(timeout=30)
    finally:
        done.set()
        writer.join()
    collect(log, detail="full")
    check_exactly_once(log, written)
    ring.close()
