"""What somebody asks in an incident, of a log of very many dense rows.

    python -m benchmarks.storing.queries --log DIR

Each question over the last five minutes and over the whole log. Cold: the first ask of a new
process, whose files have left the page cache. Warm: the median of the next asks. Any interpreter
with DuckDB, pyarrow and numpy may run it, so both majors of DuckDB answer the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from telemetry.store import Log, open_log
from telemetry.store.files import day_files
from telemetry.store.guard import Limits

WINDOW_NS = 300 * 1_000_000_000
WINDOWS = ("last five minutes", "whole log")
WARM_ASKS = 5
_LIMITS = Limits(timeout_seconds=300.0, max_rows=1_000_000)

QUESTIONS: dict[str, str] = {
    "tokens a second": "SELECT ts // 1000000000 AS second, sum(num_wanted_tokens) AS wanted, "
    "sum(num_scheduled_tokens) AS scheduled FROM step_requests WHERE ts >= {since} "
    "GROUP BY second ORDER BY second",
    "largest holders of KV blocks": "SELECT engine, request, max(num_blocks) AS blocks "
    "FROM step_requests WHERE ts >= {since} GROUP BY ALL ORDER BY blocks DESC, request LIMIT 10",
    "given nothing, and why": "SELECT zero_reason_name(zero_reason) AS reason, count(*) AS num "
    "FROM step_requests WHERE ts >= {since} AND num_scheduled_tokens = 0 GROUP BY ALL",
    "one request's steps": "SELECT step, num_computed_tokens, num_blocks FROM step_requests "
    "WHERE ts >= {since} AND request = {request} ORDER BY step",
    "the fullest step": "SELECT engine, step, sum(num_blocks) AS blocks FROM step_requests "
    "WHERE ts >= {since} GROUP BY ALL ORDER BY blocks DESC LIMIT 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How long one question took."""

    question: str
    window: str
    duckdb: str
    cold_ms: float
    warm_ms: float
    warm_cpu_ms: float
    """CPU of all threads: what a machine that does other things too does not change."""
    num_rows: int


def ask(log: Path, question: str, window: str) -> Answer:
    """Asks one question of a log, first as it is found, then again and again."""
    import duckdb

    with open_log(log, limits=_LIMITS) as opened:
        sql = _sql(opened, question, window)
        took, cpu = [], []
        for _ in range(1 + WARM_ASKS):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            table = opened.query(sql)
            took.append((time.perf_counter() - begin) * 1000)
            cpu.append((time.process_time() - cpu_begin) * 1000)
    return Answer(
        question=question,
        window=window,
        duckdb=duckdb.__version__,
        cold_ms=took[0],
        warm_ms=statistics.median(took[1:]),
        warm_cpu_ms=statistics.median(cpu[1:]),
        num_rows=table.num_rows,
    )


def _sql(log: Log, question: str, window: str) -> str:
    """Returns a question's statement; which times and request it means, small tables say."""
    (steps,) = log.query("SELECT max(ts) AS newest FROM steps").to_pylist()
    (ended,) = log.query("SELECT max(request) AS request FROM request_finishes").to_pylist()
    since = steps["newest"] - WINDOW_NS if window == WINDOWS[0] else 0
    return QUESTIONS[question].format(since=since, request=ended["request"] or 0)


def forget(log: Path) -> None:
    """Makes the page cache forget the files of a log."""
    for file in day_files(log):
        fd = os.open(file.path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def ask_all(log: Path, pythons: Sequence[str]) -> Iterator[Answer]:
    """Asks every question over every window, each in a new process; interpreters take turns."""
    for question in QUESTIONS:
        for window in WINDOWS:
            for python in pythons:
                yield _ask_in_process(log, question, window, python)


def _ask_in_process(log: Path, question: str, window: str, python: str) -> Answer:
    forget(log)
    words = ["--log", str(log), "--question", question, "--window", window]
    command = [python, "-m", "benchmarks.storing.queries", *words]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Answer(**json.loads(told))


def main() -> int:
    """Asks one question and prints the answer as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--question", choices=tuple(QUESTIONS), default=next(iter(QUESTIONS)))
    parser.add_argument("--window", choices=WINDOWS, default=WINDOWS[0])
    args = parser.parse_args()
    print(json.dumps(asdict(ask(args.log, args.question, args.window))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
