"""What is left of a record when something dies: a table of kills, full disks and copied files.

    python -m benchmarks.crash_matrix --times 20

A recorded engine in an endless preemption storm says each step that it has finished. Afterwards the
log must open, hold every step that was said, hold none twice and none in part:

* the engine is killed with -9 at a random step, each time a new one;
* the collector is killed with -9 at a random moment, while one engine runs on;
* the log's files are copied at a random instant, with what readers had seen by then;
* the disk of the log gets full and gets room again (in a mount namespace of its own).

Exit code 1 where anything is lost, doubled or torn.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telemetry.collector import find_collector, start_collector, stop_collector
from telemetry.store import Log, open_log
from tests.telemetry.collector.test_disk_full import NAMESPACE, can_mount

SEED = 4
PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Outcome:
    """What was seen of one kind of accident."""

    name: str
    times: int = 0
    num_steps: int = 0
    num_lost: int = 0
    num_doubled: int = 0
    num_torn: int = 0
    num_dropped: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing went wrong. Rows that the ring overwrote are told: no wrong."""
        return not (self.num_lost or self.num_doubled or self.num_torn or self.failures)


class Engine:
    """An engine process, and the newest step that it has said to have finished."""

    def __init__(self, log: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "tests.whole_line.storming_engine", str(log), *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.newest = -1
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.newest = int(line)

    def wait_for(self, num: int) -> None:
        """Waits until it has finished `num` more steps."""
        target = self.newest + num
        wait_until(lambda: self.newest >= target)

    def kill(self) -> int:
        """Kills it and returns the last step that it said."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        return self.newest


def wait_until(condition: Any) -> Any:
    """Waits for a condition and returns what it gave."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened in {PATIENCE_SECONDS:g} s")
        time.sleep(0.005)
    return found


@contextlib.contextmanager
def fresh_log() -> Iterator[Path]:
    """A log directory of its own, with its rings beside it."""
    with tempfile.TemporaryDirectory(prefix="stepscope-crash-") as folder:
        os.environ["STEPSCOPE_RING_DIR"] = str(Path(folder) / "rings")
        log = Path(folder) / "log"
        try:
            yield log
        finally:
            stop_collector(log)


def drained(log: Path) -> None:
    """Waits until no ring is left."""
    wait_until(lambda: not list((log.parent / "rings").glob("*.ring")))


def judge(outcome: Outcome, log: Log, acknowledged: list[int]) -> None:
    """Counts what is lost, doubled and torn; `acknowledged` are the last steps of each engine."""
    engines = log.query(
        """
        SELECT d.engine, d.num_steps AS drained, d.num_events AS drained_events,
            s.num, s.num_distinct, s.last, e.num_events, e.num_seqs,
            coalesce(e.steps_dropped, 0) AS steps_dropped,
            coalesce(e.events_dropped, 0) AS events_dropped
        FROM (SELECT engine, max(num_steps) AS num_steps, max(num_events) AS num_events
              FROM drains GROUP BY engine) d
        JOIN engines USING (engine)
        LEFT JOIN (SELECT engine, count(*) AS num, count(DISTINCT step) AS num_distinct,
                       max(step + num_repeats - 1) AS last
                   FROM steps GROUP BY engine) s USING (engine)
        LEFT JOIN (SELECT engine, count(*) FILTER (is_own) AS num_events,
                       count(DISTINCT seq) FILTER (is_own) AS num_seqs,
                       sum(last_lost - first_lost + 1) FILTER (region = 'steps') AS steps_dropped,
                       sum(last_lost - first_lost + 1) FILTER (region = 'events') AS events_dropped
                   FROM (SELECT *, kind NOT IN (event_kind('engine_died'),
                             event_kind('recorder_degraded'), event_kind('records_dropped'))
                             AS is_own FROM request_events)
                   GROUP BY engine) e USING (engine)
        ORDER BY engines.started_ts
        """
    ).to_pylist()
    if len(engines) != len(acknowledged):
        outcome.failures.append(f"{len(engines)} engines of {len(acknowledged)} are in the log")
    for engine, newest in zip(engines, acknowledged, strict=False):
        outcome.num_steps += engine["num"] or 0
        outcome.num_lost += max(newest - (-1 if engine["last"] is None else engine["last"]), 0)
        outcome.num_doubled += (engine["num"] or 0) - (engine["num_distinct"] or 0)
        outcome.num_doubled += (engine["num_events"] or 0) - (engine["num_seqs"] or 0)
        steps_dropped, events_dropped = int(engine["steps_dropped"]), int(engine["events_dropped"])
        outcome.num_dropped += steps_dropped + events_dropped
        outcome.num_torn += abs(engine["drained"] - steps_dropped - (engine["num"] or 0))
        outcome.num_torn += abs(
            engine["drained_events"] - events_dropped - (engine["num_events"] or 0)
        )


def engine_killed(times: int, chance: random.Random) -> Outcome:
    """The engine, each time a new one, at a random step."""
    outcome, said = Outcome("engine killed with -9"), []
    with fresh_log() as log:
        start_collector(log, linger_seconds=600)
        for _ in range(times):
            engine = Engine(log, "--step-seconds", "0.002")
            engine.wait_for(chance.randint(20, 400))
            said.append(engine.kill())
            outcome.times += 1
        drained(log)
        with open_log(log) as opened:
            judge(outcome, opened, said)
    return outcome


def collector_killed(times: int, chance: random.Random) -> Outcome:
    """The collector, at random moments of its work, while one engine runs on."""
    outcome = Outcome("collector killed with -9")
    with fresh_log() as log:
        engine = Engine(log, "--step-seconds", "0.002")
        try:
            for _ in range(times):
                notice = start_collector(log, linger_seconds=600)
                engine.wait_for(chance.randint(20, 300))
                os.kill(notice.pid, signal.SIGKILL)
                wait_until(lambda: find_collector(log) is None)
                outcome.times += 1
            start_collector(log, linger_seconds=600)
        finally:
            newest = engine.kill()
        drained(log)
        with open_log(log) as opened:
            judge(outcome, opened, [newest])
    return outcome


def files_copied(times: int, chance: random.Random) -> Outcome:
    """The files at an instant: the collector is held while they are copied, as a snapshot does."""
    outcome = Outcome("files copied at an instant")
    with fresh_log() as log:
        notice = start_collector(log, linger_seconds=600)
        engine = Engine(log, "--step-seconds", "0.002")
        try:
            wait_until(lambda: seen(log) is not None)
            for number in range(times):
                engine.wait_for(chance.randint(5, 150))
                time.sleep(chance.random() * 0.3)
                newest = seen(log)
                copy = log.parent / f"copy{number}"
                os.kill(notice.pid, signal.SIGSTOP)
                try:
                    copy.mkdir()
                    for path in (*log.glob("*.duckdb"), *log.glob("*.wal")):
                        shutil.copy(path, copy)
                finally:
                    os.kill(notice.pid, signal.SIGCONT)
                with open_log(copy) as opened:
                    judge(outcome, opened, [newest or 0])
                outcome.times += 1
        finally:
            engine.kill()
        drained(log)
    return outcome


def seen(log: Path) -> int | None:
    """Returns the newest step that a reader of the live log sees."""
    with open_log(log) as opened:
        newest = opened.query("SELECT max(step) AS newest FROM steps").to_pylist()[0]["newest"]
    return None if newest is None else int(newest)


def disk_filled(times: int) -> Outcome:
    """The log's disk: full under a running collector, then with room again."""
    outcome = Outcome("disk full, then room again")
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="stepscope-crash-") as folder:
            if not can_mount(Path(folder)):
                outcome.failures.append("not run: nobody may mount a small tmpfs here")
                return outcome
            script = [sys.executable, "-m", "tests.telemetry.collector.small_disk", folder]
            done = subprocess.run(
                [*NAMESPACE, *script], capture_output=True, text=True, check=False
            )
        outcome.times += 1
        outcome.num_steps += 150
        if done.returncode != 0:
            outcome.failures.append(done.stderr.strip().rpartition("\n")[2])
    return outcome


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    chance = random.Random(SEED)
    outcomes = []
    print("| accident | times | steps in the log | lost | doubled | torn | dropped, told |")
    print("|---|---|---|---|---|---|---|")
    accidents: tuple[Callable[[], Outcome], ...] = (
        lambda: engine_killed(args.times, chance),
        lambda: collector_killed(args.times, chance),
        lambda: files_copied(args.times, chance),
        lambda: disk_filled(max(args.times // 4, 1)),
    )
    for accident in accidents:
        out = accident()
        outcomes.append(out)
        counts = (
            out.times,
            out.num_steps,
            out.num_lost,
            out.num_doubled,
            out.num_torn,
            out.num_dropped,
        )
        print(f"| {out.name} |", " | ".join(f"{count:,}" for count in counts), "|", flush=True)
    for outcome in outcomes:
        for failure in outcome.failures:
            print(f"{outcome.name}: {failure}")
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
