"""How soon the dashboard shows a day of one engine: `python -m benchmarks.dashboard LOG`.

LOG is a closed log, best of `stepscope demo`. A copy of it grows to a day, its rows again and again
at a given pause; it is served and opened in Chromium, and the charts of each page are built from it
without a browser. With `--as-it-is` the log itself is shown.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.diagnosing import DAY_SECONDS
from benchmarks.showing.building import builds
from benchmarks.showing.visits import visits
from benchmarks.storing.generated import grow

DENSE = "*.dense.duckdb*"
"""Rows a request and step: no first look reads them, and a day of them takes long to make."""


def main(argv: list[str] | None = None) -> int:
    """Grows a log to a day, shows it and prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="a closed log")
    parser.add_argument("--every-seconds", type=int, default=60, help="a copy so often (60)")
    parser.add_argument("--copies", type=int, help="copies (a day of them)")
    parser.add_argument("--as-it-is", action="store_true", help="show LOG itself, without copies")
    parser.add_argument("--no-browser", action="store_true", help="build charts only")
    args = parser.parse_args(argv)
    copies = args.copies or DAY_SECONDS // args.every_seconds - 1
    with _shown(args.log, 0 if args.as_it_is else copies, args.every_seconds) as log:
        print(f"{'charts':32} {'asks':>8} {'CPU':>8} {'builds':>8} {'CPU':>8}")
        for built in builds(log):
            print(
                f"{built.page:32} {built.ask_seconds:6.2f} s {built.ask_cpu_seconds:6.2f} s "
                f"{built.build_seconds:6.2f} s {built.build_cpu_seconds:6.2f} s",
                flush=True,
            )
        if args.no_browser:
            return 0
        print(f"\n{'in a browser':32} {'verdict':>8} {'charts':>8} {'CPU of the server':>22}")
        for visited in visits(log):
            print(
                f"{visited.name:32} {visited.verdict_seconds:6.2f} s "
                f"{_seconds(visited.chart_seconds)} {visited.cpu_seconds:20.2f} s",
                flush=True,
            )
    return 0


def _seconds(value: float | None) -> str:
    return f"{'–':>8}" if value is None else f"{value:6.2f} s"


@contextmanager
def _shown(log: Path, num_copies: int, every_seconds: int) -> Iterator[Path]:
    """Yields the log to show: the given one, or a grown copy that is removed afterwards."""
    if not num_copies:
        yield log
        return
    with tempfile.TemporaryDirectory() as directory:
        day = Path(directory) / "day"
        shutil.copytree(log, day, ignore=shutil.ignore_patterns(DENSE))
        grow(day, num_copies=num_copies, span_ns=every_seconds * 1_000_000_000)
        yield day


if __name__ == "__main__":
    raise SystemExit(main())
