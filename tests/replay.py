"""Replays recorded runs from their rows in DuckDB: `python -m tests.replay DIR...`.

Each vector is run once with a `ListRecorder`. Its rows go through a ring and a collector into a
step log; a replay is made of what that log holds and has to take the same decisions, step by step.
What is compared with is the first run itself: also where ours deliberately differs from the vector.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from diagnose.replay import Decided, Replay, read_inputs
from engine.identity import DeviceMemory, describe, introduce
from engine.request import Request
from engine.scheduler.speculation import PLACEHOLDER
from telemetry.collector import Collector
from telemetry.records import RunClock
from telemetry.ring import RingRecorder
from telemetry.store import Log, open_log
from tests.conformance import Replayer, find_vectors
from tests.decisions import decisions_of, effects_of

BATCH = 32
"""Runs that go into one step log."""

OTHERS_ANSWERS = {"async_connector/sync_load_failure_recompute": 2}
"""Vector -> step from which its runner answers decisions that ours does not take: it gives no token
to a request that has reached its newest one. What comes before is recorded and replayed."""

Trace = list[tuple[str, dict[str, Any]]]
"""Of each step that was decided or taken in: which, and what is compared."""


class Recorded(Replayer):
    """A vector's run, whose decisions are taken down instead of compared."""

    def __init__(self, vector: dict[str, Any]) -> None:
        super().__init__(vector)
        self.trace: Trace = []

    def record(self) -> Recorded:
        """Runs the vector to its end, or as far as its answers fit."""
        name = f"{self.vector['category']}/{self.vector['name']}"
        difference = self.run(OTHERS_ANSWERS.get(name))
        assert difference is None, difference
        self.scheduler.journal.flush()
        return self

    def _compare(self, part: str, expected: dict[str, Any], seen: dict[str, Any]) -> str | None:
        self.trace.append((part, comparable(seen, self.requests.values())))
        return None

    def _seen_schedule(self, output: Any, expected: dict[str, Any]) -> dict[str, Any]:
        return decisions_of(self.scheduler, output)


def comparable(seen: dict[str, Any], requests: Iterable[Request]) -> dict[str, Any]:
    """Returns decisions without what a replay makes up: draft tokens, names of encoder items."""
    first_holder: dict[str, tuple[int, int]] = {}
    for request in requests:
        for index, item in enumerate(request.encoder_items):
            first_holder.setdefault(item.key, (request.number, index))
    changed = dict(seen)
    if "spec" in seen:
        changed["spec"] = [
            [name, [token if token == PLACEHOLDER else None for token in tokens]]
            for name, tokens in seen["spec"]
        ]
    if "enc_freed" in seen:
        changed["enc_freed"] = [first_holder[key] for key in seen["enc_freed"]]
    return changed


def replayed(log: Log, engine: int, *, array_path: bool = True) -> Trace:
    """Returns the decisions of the replay of one engine's run."""
    replay = Replay(read_inputs(log, engine), array_path=array_path)
    trace: Trace = []
    for step in replay.run():
        if isinstance(step, Decided):
            seen, part = decisions_of(replay.scheduler, step.output), "sched"
        else:
            seen, part = effects_of(replay.scheduler, step.sampled, step.results), "after"
            replay.scheduler.check_integrity()
        trace.append((part, comparable(seen, replay.requests)))
    return trace


def difference(recorded: Trace, again: Trace) -> str | None:
    """Returns the first difference of two traces as text, or None."""
    num_parts = {"sched": 0, "after": 0}
    for (part, one), (other_part, other) in zip(recorded, again, strict=False):
        step = num_parts[part]
        num_parts[part] += 1
        if part != other_part:
            return f"step {step}: order: recorded {part}, replayed {other_part}"
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return (
                    f"step {step}: {part} {key}: recorded {one.get(key)}, replayed {other.get(key)}"
                )
    if len(recorded) != len(again):
        return f"step {num_parts['sched']}: calls: recorded {len(recorded)}, replayed {len(again)}"
    return None


def write_ring(run: Recorded, directory: Path, log: Path) -> int:
    """Writes a run's rows into a ring of its own; returns the engine."""
    clock = RunClock.start()
    num_rows = len(run.recorder.events) + len(run.recorder.steps) + 64
    ring = RingRecorder(directory, clock, log=log, ring_bytes=max(1 << 20, num_rows * 4096))
    row = introduce(started_ts=clock.now(), model="vector", version=None)
    ring.describe_engine(describe(row, run.scheduler.config, device="cpu", memory=DeviceMemory()))
    ring.record_events(run.recorder.events)
    for step in run.recorder.steps:
        ring.record_step(step, (), None)
    ring.close()
    return ring.engine


def check_all(vectors: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str | None]]:
    """Yields each vector's name, and the first difference between its run and the replay of it."""
    remaining = iter(vectors)
    while batch := list(islice(remaining, BATCH)):
        with tempfile.TemporaryDirectory() as directory:
            log, rings = Path(directory, "log"), Path(directory, "rings")
            runs = {name: Recorded(vector).record() for name, vector in batch}
            engines = {name: write_ring(run, rings, log) for name, run in runs.items()}
            with Collector(log, directories=[rings]) as collector:
                collector.open()
                collector.drain()
            with open_log(log) as opened:
                for name, run in runs.items():
                    yield name, difference(run.trace, replayed(opened, engines[name]))


def main(arguments: list[str] | None = None) -> int:
    """Replays all vectors below the given directories; 0 if every one decides as it did."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    num_equal = num_all = 0
    for name, found in check_all(find_vectors(options.directories)):
        num_all += 1
        num_equal += found is None
        if found is not None:
            print(f"FAIL {name}: {found}")
    print(f"replay: {num_equal}/{num_all}")
    return 0 if num_all and num_equal == num_all else 1


if __name__ == "__main__":
    sys.exit(main())
