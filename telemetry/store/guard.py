"""Runs one reading statement for somebody else, within limits.

Three walls, each of which holds without the others: what the statement asks for is looked at first
(`telemetry.store.statement`); it runs in a read-only transaction; and the instance has no access to
files, networks, extensions or its own configuration. It runs until it is done or its time is up.
Whoever asks for more rows than the cap gets the first ones, and is told.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from telemetry.errors import LogBusy, QueryFailed, QueryRefused, QueryTimeout
from telemetry.rendering import printable_lines
from telemetry.store.statement import checked_statement

Parameters: TypeAlias = list[Any] | tuple[Any, ...] | dict[str, Any] | None

DEFAULT_TIMEOUT_SECONDS = 30.0
LONGEST_TIMEOUT_SECONDS = 86_400.0
DEFAULT_MAX_ROWS = 1_000_000
MAX_ANSWER_BYTES = 512 << 20
MAX_MEMORY_BYTES = 4 << 30
COLLECTOR_MEMORY_BYTES = 1 << 30
"""The most for an instance beside an engine: what a query needs beyond it goes to files."""
MAX_SPILL_BYTES = 8 << 30
_BATCH_ROWS = 65_536
_OPENED_ANEW = "the step log was opened anew while the query ran: ask again"
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may take.

    Raises:
        QueryRefused: A limit is not above 0, or the time-out longer than a day.
    """

    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_rows: int = DEFAULT_MAX_ROWS

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds <= LONGEST_TIMEOUT_SECONDS:  # NaN too
            raise QueryRefused(
                f"--timeout is {self.timeout_seconds:g}: it must be above 0 seconds and at most "
                f"{LONGEST_TIMEOUT_SECONDS:,.0f}"
            )
        if self.max_rows < 1:
            raise QueryRefused(f"--max-rows is {self.max_rows}: it must be 1 or more")


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of a query. `truncated` says that there were more than the cap."""

    table: pa.Table
    truncated: bool


def lock_down(connection: Any, spill: Path, most_bytes: int = MAX_MEMORY_BYTES) -> None:
    """Cuts an instance off from files and networks; it cannot be undone. Attach before.

    What does not fit into its memory, `most_bytes` or a quarter of what there is, goes to files in
    `spill`.
    """
    place = str(spill).replace("'", "''")
    for setting in (
        f"memory_limit = '{_memory_bytes(most_bytes) >> 20} MiB'",
        f"temp_directory = '{place}'",
        f"max_temp_directory_size = '{MAX_SPILL_BYTES >> 20} MiB'",
        "enable_external_access = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "python_enable_replacements = false",  # no variable of this program is a table
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def _memory_bytes(most: int) -> int:
    """Returns what an instance may take of the memory that it shares with others."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        ram = min(ram, int(_CONTAINER_LIMIT.read_text()))
    return min(most, ram // 4)


def run_query(connection: Any, sql: str, params: Parameters, limits: Limits) -> Answer:
    """Returns what one reading statement gives.

    Raises:
        QueryRefused: It is not exactly one statement that only reads the log.
        QueryTimeout: It took longer than its limit.
        QueryFailed: DuckDB could not run it.
        LogBusy: The instance was closed meanwhile; ask again.
    """
    try:
        statement = checked_statement(connection, sql)
    except QueryFailed as error:
        if _was_interrupted(error):
            raise LogBusy(_OPENED_ANEW) from error
        raise
    with timed(connection, limits.timeout_seconds) as timed_out:
        try:
            return _run(connection, statement, params, limits.max_rows)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if timed_out.is_set():
                raise QueryTimeout(
                    f"the query took longer than {limits.timeout_seconds:g} s and was stopped: "
                    "narrow its time window (ts) or raise the time-out"
                ) from error
            if _was_interrupted(error):
                raise LogBusy(_OPENED_ANEW) from error
            raise QueryFailed(printable_lines(str(error))) from error


@contextlib.contextmanager
def timed(connection: Any, seconds: float) -> Iterator[threading.Event]:
    """Interrupts what runs longer; the event is set when that has happened."""
    timed_out = threading.Event()

    def interrupt() -> None:
        timed_out.set()
        connection.interrupt()

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield timed_out
    finally:
        timer.cancel()


def _was_interrupted(error: Exception) -> bool:
    """Returns whether somebody stopped the query; by way of Arrow only the text says so."""
    return str(error).startswith("INTERRUPT Error")


def _run(connection: Any, statement: Any, params: Parameters, max_rows: int) -> Answer:
    connection.execute("BEGIN TRANSACTION READ ONLY")
    try:
        return _fetch(connection.sql(statement, params=params), max_rows)
    finally:
        connection.execute("ROLLBACK")


def _fetch(relation: Any, max_rows: int) -> Answer:
    """Reads rows until there are no more, or more than the cap."""
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    batches, num_rows, num_bytes = [], 0, 0
    while num_rows <= max_rows:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        batches.append(batch)
        num_rows += batch.num_rows
        num_bytes += batch.nbytes
        if num_bytes > MAX_ANSWER_BYTES:
            raise QueryRefused(
                f"the answer is larger than {MAX_ANSWER_BYTES >> 20:,} MiB after {num_rows:,} "
                "rows: name fewer columns, aggregate, or add LIMIT"
            )
    table = pa.Table.from_batches(batches, schema=reader.schema)
    del reader
    return Answer(table.slice(0, max_rows), num_rows > max_rows)


def check_parameters(params: Parameters) -> Parameters:
    """Returns parameters that may travel to a collector as JSON.

    Raises:
        QueryRefused: One of them is not a number, text, boolean, NULL or a list of these.
    """
    values = list(params.values()) if isinstance(params, dict) else list(params or ())
    for value in values:
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None and not isinstance(item, bool | int | float | str):
                raise QueryRefused(
                    f"a query parameter is a {type(item).__name__}: give numbers, text, "
                    "booleans, None or lists of them (times as ns in `ts`, or as text)"
                )
    return params
