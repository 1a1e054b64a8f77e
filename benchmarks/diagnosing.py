"""How long all rules take over a day of one engine: `python -m benchmarks.diagnosing LOG`.

LOG is a closed log, best of `stepscope demo`. A copy of it grows to a day, its rows again and again
at a given pause, and is judged once, rule by rule.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.storing.generated import grow
from diagnose.diagnosis import read_context
from diagnose.finding import RuleVerdict
from diagnose.rules import RULES
from diagnose.window import choose_window, engines_in
from telemetry.store import open_log

DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one part took: wall time and CPU of all threads, in seconds."""

    part: str
    wall_seconds: float
    cpu_seconds: float


def judge(log_directory: Path) -> Iterator[Taken]:
    """Yields what reading the facts and each rule took, over the whole of a closed log."""
    with open_log(log_directory) as log:
        window = choose_window(log)
        wall, cpu = time.perf_counter(), time.process_time()
        context = read_context(log, window, engines_in(log, window)[0])
        yield _since("facts and accounting", wall, cpu)
        verdicts: dict[str, RuleVerdict] = {}
        for rule in RULES.values():
            wall, cpu = time.perf_counter(), time.process_time()
            verdict = rule.judge(context, verdicts)
            if verdict is not None:
                verdicts[rule.id] = verdict
            yield _since(rule.id, wall, cpu)


def _since(part: str, wall: float, cpu: float) -> Taken:
    return Taken(
        part=part,
        wall_seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
    )


def main(argv: list[str] | None = None) -> int:
    """Grows a log to a day, judges it and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="a closed log")
    parser.add_argument("--every-seconds", type=int, default=60, help="a copy so often (60)")
    parser.add_argument("--copies", type=int, help="copies (a day of them)")
    args = parser.parse_args(argv)
    copies = args.copies or DAY_SECONDS // args.every_seconds - 1
    with tempfile.TemporaryDirectory() as directory:
        day = Path(directory) / "day"
        shutil.copytree(args.log, day)
        grow(day, num_copies=copies, span_ns=args.every_seconds * 1_000_000_000)
        taken = list(judge(day))
    for part in sorted(taken, key=lambda part: -part.wall_seconds)[:12]:
        print(f"{part.part:32} {part.wall_seconds:7.2f} s  {part.cpu_seconds:7.2f} s CPU")
    wall, cpu = sum(p.wall_seconds for p in taken), sum(p.cpu_seconds for p in taken)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{'all of ' + str(len(taken)):32} {wall:7.2f} s  {cpu:7.2f} s CPU, most {most} MiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
