"""What the step log costs: on the way in, on disk, and when it is asked.

    python -m benchmarks.store --python2x PATH

Part `drain`: the collector's throughput against DuckDB's own insert, in turns. Part `collectors`:
the CPU of a collector with 1, 8 and 40 engines of 50 steps a second and 256 requests. Part `sizes`:
bytes a dense row and a step. Part `queries`: a log of 100 million dense rows, asked cold and warm,
on this DuckDB and on that of another interpreter. `--quick` takes little of it all, to see that it
runs.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.storing import collectors, drain, generated, queries, sizes
from benchmarks.storing.engines import NUM_REQUESTS, STEPS_PER_SECOND

PARTS = ("drain", "collectors", "sizes", "queries")
NUM_ENGINES = (1, 8, 40)
GOAL_ONE_ENGINE = 0.03
GOAL_FORTY_ENGINES = 2.0
GOAL_WINDOW_MS = 100.0
GOAL_WHOLE_MS = {"1": 2000.0, "2": 1000.0}
"""By DuckDB's major version."""
FIRST_COPY_STEPS = 1000


def verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def show_drain(directory: Path, args: argparse.Namespace) -> None:
    """Compares rounds of what 250 ms bring, and of what a collector that fell behind takes."""
    rounds = 4 if args.quick else 60
    print("drain            rows a round   rows/s  raw rows/s   CPU µs/row  raw   ratio (95 %)")
    for name, steps, num in (
        ("each 250 ms", sizes.STEPS_PER_FLUSH, rounds),
        ("40 engines", 40 * sizes.STEPS_PER_FLUSH, max(rounds // 4, 3)),
        ("catching up", 1000, max(rounds // 6, 3)),
    ):
        found = drain.compare(
            directory / name, steps_per_round=steps, num_rounds=num, num_requests=NUM_REQUESTS
        )
        ratio, low, high = found.ratio()
        drained, raw = found.drained, found.raw
        print(
            f"{name:<16} {found.rows_per_round:12,} {found.rows_per_second(drained):8,.0f} "
            f"{found.rows_per_second(raw):11,.0f} {found.cpu_us_per_row(drained):12.2f} "
            f"{found.cpu_us_per_row(raw):4.2f}   {ratio:.2f} ({low:.2f} to {high:.2f})  "
            f"goal {drain.GOAL_RATIO:g}: {verdict(ratio >= drain.GOAL_RATIO)}"
        )


def show_collectors(directory: Path, args: argparse.Namespace) -> None:
    """Runs a collector with few and with many engines."""
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    print("collector  dense rows/s   of a core   engines' process      lag   lost   latest step")
    for num in NUM_ENGINES:
        with tempfile.TemporaryDirectory(dir=shared, prefix="stepscope-bench-") as memory:
            load = collectors.measure(
                directory / f"{num}",
                num_engines=num,
                seconds=9.0 if args.quick else 27.0,
                rate=STEPS_PER_SECOND,
                num_requests=NUM_REQUESTS,
                shared_memory=Path(memory),
            )
        goal = {1: GOAL_ONE_ENGINE, 40: GOAL_FORTY_ENGINES}.get(num)
        is_met = goal is not None and load.core_ratio <= goal and load.is_complete
        end = "" if goal is None else f"   goal {goal:.0%}: {verdict(is_met)}"
        print(
            f"{num:2} engine(s) {load.dense_rows_per_second:12,.0f} {load.core_ratio:10.1%} "
            f"{load.writer_core_ratio:17.1%} {load.lag_seconds:6.2f} s {load.num_lost:6,} "
            f"{load.latest_step_seconds * 1000:10.0f} ms{end}"
        )


def show_sizes(directory: Path, args: argparse.Namespace) -> None:
    """Weighs a log as a collector leaves it."""
    num_steps = 500 if args.quick else 8000
    log = sizes.write_log(directory, num_steps=num_steps, num_requests=NUM_REQUESTS)
    found = sizes.measure(log, num_steps=num_steps, num_dense_rows=num_steps * NUM_REQUESTS)
    is_met = found.bytes_per_dense_row <= sizes.GOAL_DENSE_BYTES
    print(
        f"on disk          {found.bytes_per_dense_row:.2f} bytes a dense row "
        f"({found.num_dense_rows:,} rows), {found.bytes_per_step:.0f} bytes a step with its events "
        f"({num_steps:,} steps)  goal {sizes.GOAL_DENSE_BYTES:g}: {verdict(is_met)}"
    )


def show_queries(directory: Path, args: argparse.Namespace) -> None:
    """Makes a long log and asks it."""
    rows = 2_000_000 if args.quick else args.rows
    log = directory / "log"
    if not log.exists():
        sizes.write_log(directory, num_steps=FIRST_COPY_STEPS, num_requests=NUM_REQUESTS)
        copies = max(rows // (FIRST_COPY_STEPS * NUM_REQUESTS), 1) - 1
        generated.grow(log, num_copies=copies, span_ns=FIRST_COPY_STEPS * sizes.NS_PER_STEP)
    made = sum(file.path.stat().st_size for file in queries.day_files(log))
    print(f"queries          about {rows:,} dense rows, {made / 1e9:.2f} GB")
    pythons = [sys.executable, *filter(None, [args.python2x])]
    for answer in queries.ask_all(log, pythons):
        whole = GOAL_WHOLE_MS[answer.duckdb.partition(".")[0]]
        goal = GOAL_WINDOW_MS if answer.window == queries.WINDOWS[0] else whole
        print(
            f"{answer.question:<28} {answer.window:<17} DuckDB {answer.duckdb} "
            f"cold {answer.cold_ms:7,.0f} ms   warm {answer.warm_ms:7,.0f} ms "
            f"(CPU {answer.warm_cpu_ms:7,.0f})   {answer.num_rows:,} rows  "
            f"goal {goal:,.0f} ms: {verdict(answer.warm_ms <= goal)}"
        )


SHOW: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "drain": show_drain,
    "collectors": show_collectors,
    "sizes": show_sizes,
    "queries": show_queries,
}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000, help="dense rows of the long log")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--python2x", metavar="PATH", help="an interpreter with DuckDB 2")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the long log here, or use it"
    )
    args = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a file shows how far it is, too
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(f"load average before: {load}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as temporary:
        for part in args.only or PARTS:
            is_kept = part == "queries" and args.keep is not None
            SHOW[part](args.keep if is_kept else Path(temporary) / part, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
