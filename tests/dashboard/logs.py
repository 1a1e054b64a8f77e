"""Logs for the dashboard's tests, recorded from the real scheduler on a clock of its own.

`storm` is many clients on a small pool; `calm` the same on an ample one; `dying` a storm whose
engine goes without a word, with a hole in its record.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from engine.runner.scripted import ScriptedRunner
from engine.scheduler import Scheduler, SchedulerOutput
from telemetry.store.files import DayFile, attach, day_files, day_of
from telemetry.store.schema import create_tables
from telemetry.vocabulary import EventKind
from tests.diagnose.logs import Arrival, Clock, MemoryLog, Run, _request, config, log_of
from tests.telemetry.log_builder import MS, START, LogBuilder, _dense_rows, insert

ENGINE = 0x7000000000000001
"""Larger than a JavaScript number can hold exactly."""


def storm(
    *, num_requests: int = 84, num_clients: int = 28, num_gpu_blocks: int = 64, engine: int = ENGINE
) -> Run:
    """Returns a run of clients that each wait for their answer, as the demo's are."""
    settings = config(num_gpu_blocks=num_gpu_blocks)
    recorded = Run(settings, engine=engine)
    clock = _TickingClock()
    scheduler = Scheduler(settings, recorder=recorded.recorder, clock=clock)
    runner = ScriptedRunner(lambda request_id, n: 7)
    jitter = random.Random(7)
    sent = 0
    while sent < num_requests or scheduler.has_requests():
        while sent < num_requests and len(scheduler.requests) < _allowed(sent, num_clients):
            scheduler.add_request(_request(sent, Arrival(0)))
            sent += 1
            clock.now += MS
        output = scheduler.schedule()
        clock.now += _step_ns(output, jitter)
        scheduler.update_from_output(output, runner.execute(output))
    recorded.num_preemptions = scheduler.num_preemptions
    return recorded


def _allowed(sent: int, num_clients: int) -> int:
    return 1 if sent == 0 else num_clients


def _step_ns(output: SchedulerOutput, jitter: random.Random) -> int:
    tokens = output.total_num_scheduled_tokens
    return int((3.5 + 0.02 * tokens + jitter.random()) * MS)


class _TickingClock(Clock):
    """Moves by 2 µs each time it is read, so that no two moments are equal."""

    def __call__(self) -> int:
        self.now += 2_000
        return self.now


def calm() -> Run:
    """Returns the same load on a pool that holds it."""
    return storm(num_gpu_blocks=2048)


def dying_builder() -> LogBuilder:
    """Returns the storm up to the middle; a stretch of it was dropped, and its engine died."""
    builder = storm().builder()
    steps = builder.rows["steps"]
    middle = steps[len(steps) // 2]["ts"]
    first, last = len(steps) // 4, len(steps) // 4 + 60
    lost = {row["step"] for row in steps[first:last]}
    for name in ("steps", "request_arrivals", "request_events", "request_finishes"):
        builder.rows[name] = [
            row
            for row in builder.rows[name]
            if row["ts"] < middle and not (name == "steps" and row["step"] in lost)
        ]
    died = max(row["step"] for row in builder.rows["steps"])
    builder._seq = 1_000_000
    builder.event(
        EventKind.records_dropped,
        ts=steps[last]["ts"],
        step=last,
        region="steps",
        first_lost=first,
        last_lost=last - 1,
    )
    builder.event(EventKind.engine_died, ts=middle, step=died, text="forward")
    return builder


def memory(run: Run) -> MemoryLog:
    return log_of(run.builder())


def dense_builder(run: Run) -> LogBuilder:
    """Returns a run's rows with those of `step_requests`, as detail `full` keeps them."""
    builder = run.builder()
    moments = {row["step"]: row["ts"] for row in builder.rows["steps"]}
    for number, requests in run.recorder.step_requests:
        for row in _dense_rows(requests):
            builder._add("step_requests", {"step": number, "ts": moments[number]} | row)
    return builder


def write_dense_log(directory: Path, builder: LogBuilder) -> Path:
    """Writes a closed step log at detail `full`; returns the directory."""
    dense = {"step_requests": list(builder.rows["step_requests"])}
    write_log(directory, builder)
    builder.rows.update(dense)
    file = DayFile(day_of(START), True, directory)
    connection = duckdb.connect()
    attach(connection, file, read_only=False)
    connection.execute(f"USE {file.database}")
    for statement in create_tables(file.database, dense=True):
        connection.execute(statement)
    insert(connection, builder, tables=["step_requests"])
    connection.close()
    return directory


def write_log(directory: Path, *builders: LogBuilder) -> Path:
    """Writes the rows as a closed step log, as the collector leaves it; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    file = DayFile(day_of(START), False, directory)
    connection = duckdb.connect()
    attach(connection, file, read_only=False)
    connection.execute(f"USE {file.database}")
    for statement in create_tables(file.database, dense=False):
        connection.execute(statement)
    connection.execute("CREATE TEMP TABLE step_requests AS SELECT 1 AS engine WHERE false")
    for builder in builders:
        builder.rows["step_requests"].clear()
    insert(connection, *builders)
    connection.close()
    assert day_files(directory)
    return directory


Builder = Callable[[], LogBuilder]
Rows = dict[str, list[dict[str, Any]]]
