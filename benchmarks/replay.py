"""How fast a recorded load is replayed, in how much memory: `python -m benchmarks.replay [LOG]`.

Speed: loads with 16, 64 and 256 requests running, recorded on a simulated clock whose steps take
what those of a middling GPU do (25 ms and more), are replayed under their own settings. CPU seconds
are counted, so other work beside it changes little.

Memory: a copy of LOG, a closed log (best of `stepscope serve --detail transitions`), grows to a
million steps; reading and replaying it runs in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.traffic import Call, about
from benchmarks.storing.generated import grow
from diagnose.reading import read_rows
from diagnose.replay import read_workload, simulate
from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from telemetry.store import open_log

NUM_RUNNING = (16, 64, 256)
NUM_STEPS = 1_000_000
ROUNDS = 4
"""Requests of each client."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One replay: steps, the time that they stand for, and what it took (CPU seconds)."""

    num_running: int
    num_steps: int
    real_seconds: float
    read_seconds: float
    replay_seconds: float
    num_preemptions: int

    def __str__(self) -> str:
        return (
            f"| {self.num_running} | {self.num_steps:,} | {self.real_seconds:,.0f} s "
            f"| {self.num_preemptions:,} | {self.read_seconds:.2f} s | {self.replay_seconds:.2f} s "
            f"| {self.num_steps / self.replay_seconds:,.0f} "
            f"| {self.real_seconds / self.replay_seconds:,.0f} x |"
        )


def measure(num_running: int, *, is_pressed: bool, seed: int = 1) -> Speed:
    """Returns how fast a load of so many clients is replayed.

    Args:
        is_pressed: whether the pool holds only two thirds of what they would hold.
    """
    random = Random(seed)
    num_blocks = num_running * 32 * (2 if is_pressed else 4) // 3
    config = EngineConfig(
        cache=CacheConfig(block_size=16, num_gpu_blocks=num_blocks + 1),
        scheduler=SchedulerConfig(max_num_seqs=num_running, max_num_batched_tokens=8192),
    )
    calls = [
        Call(num_prompt_tokens=about(random, 256), max_tokens=about(random, 256))
        for _ in range(num_running * ROUNDS)
    ]
    left = iter(calls[num_running:])
    engine = Recording(config, random, on_end=lambda engine, number: next(left, None))
    engine.send(calls[:num_running])
    engine.run()
    began = time.process_time()
    workload = read_workload(log_of(engine), engine.engine)
    read = time.process_time()
    outcome = simulate(workload)
    return Speed(
        num_running=num_running,
        num_steps=outcome.num_steps,
        real_seconds=outcome.duration_ns / 1e9,
        read_seconds=read - began,
        replay_seconds=time.process_time() - read,
        num_preemptions=outcome.num_preemptions,
    )


def replay_log(log_directory: Path) -> str:
    """Reads and replays a log in this process; returns what that took."""
    with open_log(log_directory) as log:
        (row,) = read_rows(log, "SELECT DISTINCT engine FROM steps")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        began = time.process_time()
        workload = read_workload(log, row["engine"])
    read = time.process_time()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    outcome = simulate(workload)
    taken = time.process_time() - read
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return (
        f"{outcome.num_steps:,} steps, {workload.num_requests:,} requests, "
        f"{outcome.num_preemptions:,} preemptions: read in {read - began:.1f} s, replayed in "
        f"{taken:.1f} s ({outcome.duration_ns / 1e9 / taken:,.0f} x real time); most memory "
        f"{before} MiB before, {after} MiB when read, {most} MiB when replayed"
    )


def main(argv: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", nargs="?", type=Path, help="a closed log, to grow")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="steps of the grown log")
    parser.add_argument("--no-speed", action="store_true", help="replay LOG only")
    parser.add_argument("--as-it-is", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.as_it_is:
        print(replay_log(args.log))
        return 0
    if not args.no_speed:
        _print_speeds()
    if args.log is not None:
        with tempfile.TemporaryDirectory() as name:
            _replay_grown(args.log, Path(name) / "long", args.steps)
    return 0


def _print_speeds() -> None:
    print("| running | steps | stand for | preemptions | read | replayed | steps/s | real time |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    for num_running in NUM_RUNNING:
        for is_pressed in (False, True):
            print(measure(num_running, is_pressed=is_pressed), flush=True)


def _replay_grown(log: Path, grown: Path, num_steps: int) -> None:
    """Grows a log and replays it in a process of its own."""
    shutil.copytree(log, grown)
    with open_log(log) as opened:
        sql = "SELECT sum(num_repeats)::BIGINT AS num, max(ts) - min(ts) AS span FROM steps"
        (row,) = read_rows(opened, sql)
    grow(grown, num_copies=num_steps // row["num"], span_ns=row["span"] + 1_000_000_000)
    command = [sys.executable, "-m", "benchmarks.replay", str(grown), "--as-it-is"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, end="")


if __name__ == "__main__":
    sys.exit(main())
