"""A served engine under everything at once for a long time: does anything grow, or get lost?

    python -m benchmarks.soak --minutes 30 --seed 1

A real engine (the tiny Llama, a pool so small that it preempts), recorded by its collector, gets a
mixture of all its features (`benchmarks/soaking/features.py`), half of them streamed, from callers
who hang up and whose requests are aborted. An operator pauses it, resets its cache, and has it
check its books meanwhile. Every 20 seconds everybody waits until the engine is idle, and is
measured: memory, handles and threads of API, engine and collector, and KV blocks in use.

At the end each request must have ended exactly once in the log, as its caller was told; the last
third of the run must be level with the middle third. Exit code 1 where not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from benchmarks.soaking.callers import Callers, Outcome
from benchmarks.soaking.features import Feature, features, make_adapters
from benchmarks.soaking.gauges import Sample, blocks_in_use, measure
from benchmarks.soaking.operator import Operator
from benchmarks.soaking.verdict import Level, complaints_about_ends, levels
from telemetry.collector import find_collector, stop_collector
from telemetry.store import open_log
from telemetry.store.presence import is_collected
from tests.engine.server.server_process import children_of, command_of, read_url, wait_until

ROUND_SECONDS = 20.0
IDLE_SECONDS = 30.0
"""How long an engine may take to give back its blocks once everybody has been answered."""

FLAGS = (
    *("--num-gpu-blocks-override", "80", "--max-num-seqs", "12", "--max-model-len", "512"),
    *("--max-num-queued-reqs", "200", "--linger", "1"),
)


def main() -> int:
    args = _parse()
    with tempfile.TemporaryDirectory(prefix="stepscope-soak-") as folder:
        table = [each for each in features(Path(folder)) if each.name not in args.without]
        if any(each.name == "adapters" for each in table):
            make_adapters(Path(folder))
        os.environ["STEPSCOPE_RING_DIR"] = f"{folder}/rings"
        log = Path(folder) / "log" if args.log is None else args.log
        try:
            with _served(log, table) as (url, process):
                samples, callers, operator = asyncio.run(_soak(args, url, process, log, table))
        finally:
            stop_collector(log)
            wait_until(lambda: not is_collected(log))
        complaints = complaints_about_ends(open_log(log), callers.outcomes)
    found = levels(samples)
    _print(found, samples, callers.outcomes, operator, complaints)
    if args.json is not None:
        _write(args.json, samples, found, callers.outcomes, operator, complaints)
    is_fine = all(each.is_level for each in found) and not (complaints or operator.problems)
    return 0 if is_fine else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=16, help="callers")
    parser.add_argument("--pause", type=float, default=0.4, help="of a caller, mean seconds")
    parser.add_argument("--without", nargs="*", default=[], help="features to leave out")
    parser.add_argument("--log", type=Path, help="new directory for a log that is kept")
    parser.add_argument("--json", type=Path, help="file for all figures")
    return parser.parse_args()


@contextlib.contextmanager
def _served(log: Path, table: Sequence[Feature]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Runs the engine with the features' flags; ends it in order."""
    flags = [flag for feature in table for flag in feature.flags]
    command = [sys.executable, "-m", "stepscope", "serve", "--port", "0", "--log", str(log)]
    process = subprocess.Popen(
        [*command, *FLAGS, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield read_url(process), process
    finally:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        print(said, end="")


async def _soak(
    args: argparse.Namespace,
    url: str,
    process: subprocess.Popen[str],
    log: Path,
    table: Sequence[Feature],
) -> tuple[list[Sample], Callers, Operator]:
    random = Random(args.seed)
    asked = [feature for feature in table if feature.fields is not None]
    callers = Callers(url, asked, random, args.at_once, args.pause)
    operator = Operator(url, random)
    samples: list[Sample] = []
    started = time.monotonic()
    while (seconds := time.monotonic() - started) < args.minutes * 60:
        async with operator.at_work():
            await callers.ask_for(min(ROUND_SECONDS, args.minutes * 60 - seconds + 1))
        books = await _idle(operator)
        samples.append(
            measure(
                _processes(process.pid, log),
                books,
                seconds=time.monotonic() - started,
                num_requests=len(callers.outcomes),
            )
        )
        _tell(samples[-1], callers.outcomes, operator)
    return samples, callers, operator


async def _idle(operator: Operator) -> dict[str, object]:
    """Returns the engine's books once it holds no block, or will not let go of the last."""
    until = time.monotonic() + IDLE_SECONDS
    while True:
        books = await operator.check_books()
        if not blocks_in_use(books) or time.monotonic() > until:
            return books
        await asyncio.sleep(0.2)


def _processes(api: int, log: Path) -> dict[str, int]:
    """Returns the processes to measure, by name."""
    engine = next(pid for pid in children_of(api) if b"spawn_main" in command_of(pid))
    collector = find_collector(log)
    assert collector is not None
    return {"API": api, "engine": engine, "collector": collector.pid}


def _tell(sample: Sample, outcomes: Sequence[Outcome], operator: Operator) -> None:
    memory = "  ".join(f"{k} {v:.0f}" for k, v in sample.values.items() if k.endswith("MiB"))
    num_errors = sum(1 for each in outcomes if each.error and each.fate != "malformed")
    print(
        f"{sample.seconds / 60:5.1f} min  {sample.num_requests:,} requests, {num_errors} errors  "
        f"{memory}  blocks {sample.values['blocks in use']:.0f}  "
        f"{len(operator.problems)} problems",
        flush=True,
    )


def _print(
    found: Sequence[Level],
    samples: Sequence[Sample],
    outcomes: Sequence[Outcome],
    operator: Operator,
    complaints: Sequence[str],
) -> None:
    print(f"\n{len(samples)} idle moments in {samples[-1].seconds / 60:.1f} min")
    print(f"{'':20} {'first third':>12} {'middle':>10} {'last':>10}")
    for each in found:
        print(
            f"{each.name:20} {each.first:12.1f} {each.middle:10.1f} {each.last:10.1f}  "
            f"{'level' if each.is_level else 'GROWS'}"
        )
    for name, counts in (
        ("requests", Counter(each.feature for each in outcomes)),
        ("fates", Counter(each.fate for each in outcomes)),
        ("ends told", Counter(reason for each in outcomes for reason in each.finish_reasons)),
        ("operator", operator.deeds),
    ):
        print(f"{name}: " + ", ".join(f"{n:,} {what}" for what, n in counts.most_common()))
    print(f"books: {len(operator.problems)} problems {operator.problems[:3]}")
    print(f"ends: {len(complaints)} complaints")
    for complaint in complaints[:20]:
        print(f"  {complaint}")


def _write(
    path: Path,
    samples: Sequence[Sample],
    found: Sequence[Level],
    outcomes: Sequence[Outcome],
    operator: Operator,
    complaints: Sequence[str],
) -> None:
    path.write_text(
        json.dumps(
            {
                "samples": [{"seconds": s.seconds, **s.values} for s in samples],
                "levels": [[e.name, e.first, e.middle, e.last, e.is_level] for e in found],
                "num_requests": Counter(each.feature for each in outcomes),
                "problems": operator.problems,
                "complaints": list(complaints),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
