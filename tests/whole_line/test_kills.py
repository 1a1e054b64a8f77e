"""Kills: whatever dies with -9, no finished step is lost, and none is told twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from telemetry.collector import find_collector, start_collector
from telemetry.store import open_log

SEED = 7


@contextmanager
def storming_engine(log: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.whole_line.storming_engine", str(log)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def read_steps(process: subprocess.Popen[str], count: int) -> list[int]:
    """Returns the next step numbers that the engine says."""
    assert process.stdout is not None
    return [int(process.stdout.readline()) for _ in range(count)]


def kill_and_read_rest(process: subprocess.Popen[str]) -> list[int]:
    """Kills the engine and returns what it had still said before."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    return [int(line) for line in process.stdout.read().splitlines() if line.strip()]


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def rings(log: Path) -> list[Path]:
    return list((log.parent / "rings").glob("*.ring"))


def recorded_steps(log: Path) -> list[int]:
    """Returns all step numbers of the log, rows with a count told out, in order."""
    with open_log(log) as opened:
        rows = opened.query("SELECT step, num_repeats FROM steps ORDER BY ts, step").to_pylist()
    return [row["step"] + n for row in rows for n in range(row["num_repeats"])]


def test_an_engine_that_is_killed_has_lost_no_finished_step(log: Path) -> None:
    """Ten kills in the middle of a storm, at random steps."""
    generator = random.Random(SEED)
    said: list[list[int]] = []
    for _ in range(10):
        start_collector(log, linger_seconds=30)
        with storming_engine(log) as process:
            steps = read_steps(process, generator.randint(20, 300))
            said.append(steps + kill_and_read_rest(process))
        wait_until(lambda: not rings(log))
    with open_log(log) as opened:
        engines = [
            r["engine"] for r in opened.query("FROM engines ORDER BY started_ts").to_pylist()
        ]
        assert len(engines) == 10
        for engine, steps in zip(engines, said, strict=True):
            rows = opened.query(
                "SELECT step, num_repeats FROM steps WHERE engine = ? ORDER BY step", [engine]
            ).to_pylist()
            recorded = [row["step"] + n for row in rows for n in range(row["num_repeats"])]
            assert recorded == list(range(len(recorded))), "a step is missing or twice"
            assert set(steps) <= set(recorded)
            died = opened.query(
                "SELECT step FROM request_events WHERE engine = ? AND kind = event_kind(?)",
                [engine, "engine_died"],
            ).to_pylist()
            assert len(died) == 1
            assert died[0]["step"] in (steps[-1], steps[-1] + 1)


def test_the_storm_was_one(log: Path) -> None:
    start_collector(log, linger_seconds=30)
    with storming_engine(log) as process:
        read_steps(process, 200)
        kill_and_read_rest(process)
    wait_until(lambda: not rings(log))
    with open_log(log) as opened:
        rows = opened.query("SELECT count(*) AS n FROM preemptions").to_pylist()
        counters = opened.query("SELECT max(num_preemptions_total) AS n FROM steps").to_pylist()
    assert rows[0]["n"] == counters[0]["n"] > 0


def test_a_collector_that_is_killed_loses_and_doubles_nothing(log: Path) -> None:
    """Killed eight times at random moments of its work, the engine never notices."""
    generator = random.Random(SEED)
    steps: list[int] = []
    with storming_engine(log) as process:
        for _ in range(8):
            notice = start_collector(log, linger_seconds=30)
            steps += read_steps(process, generator.randint(50, 200))
            os.kill(notice.pid, signal.SIGKILL)
            wait_until(lambda: find_collector(log) is None)
        start_collector(log, linger_seconds=30)
        steps += read_steps(process, 50)
        steps += kill_and_read_rest(process)
    wait_until(lambda: not rings(log))
    recorded = recorded_steps(log)
    assert recorded == list(range(len(recorded))), "a step is missing or twice"
    assert set(steps) <= set(recorded)
    with open_log(log) as opened:
        dropped = opened.query(
            "SELECT count(*) AS n FROM request_events WHERE kind = event_kind('records_dropped')"
        ).to_pylist()
    assert dropped[0]["n"] == 0


def test_doctor_says_at_which_step_an_engine_died(log: Path) -> None:
    start_collector(log, linger_seconds=30)
    with storming_engine(log) as process:
        last = (read_steps(process, 40) + kill_and_read_rest(process))[-1]
    wait_until(lambda: not rings(log))
    said = subprocess.run(
        [sys.executable, "-m", "stepscope", "doctor", "--log", str(log)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert "died" in said
    assert f"step {last:,}" in said or f"step {last + 1:,}" in said
