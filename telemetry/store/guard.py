"""Runs one reading statement for somebody else, within limits.

One statement, SELECT or EXPLAIN, in a read-only transaction, in an instance without external
access, until it is done or its time is up. Whoever asks for more rows than the cap gets the first
ones, and is told.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from telemetry.errors import QueryFailed, QueryRefused, QueryTimeout

Parameters: TypeAlias = list[Any] | tuple[Any, ...] | dict[str, Any] | None

DEFAULT_TIMEOUT_SECONDS = 30.0
LONGEST_TIMEOUT_SECONDS = 86_400.0
DEFAULT_MAX_ROWS = 1_000_000
_BATCH_ROWS = 65_536
_READING = ("SELECT", "EXPLAIN")


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


def lock_down(connection: Any) -> None:
    """Cuts an instance off from files and networks; it cannot be undone. Attach before."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET lock_configuration = true")


def run_query(connection: Any, sql: str, params: Parameters, limits: Limits) -> Answer:
    """Returns what one reading statement gives.

    Raises:
        QueryRefused: It is not exactly one SELECT or EXPLAIN.
        QueryTimeout: It took longer than its limit.
        QueryFailed: DuckDB could not run it.
    """
    statement = _checked(connection, sql)
    timed_out = threading.Event()

    def interrupt() -> None:
        timed_out.set()
        connection.interrupt()

    timer = threading.Timer(limits.timeout_seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        return _run(connection, statement, params, limits.max_rows)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if timed_out.is_set():
            raise QueryTimeout(
                f"the query took longer than {limits.timeout_seconds:g} s and was stopped: "
                "narrow its time window (ts) or raise the time-out"
            ) from error
        raise QueryFailed(str(error)) from error
    finally:
        timer.cancel()


def _checked(connection: Any, sql: str) -> Any:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryFailed(str(error)) from error
    if len(statements) != 1:
        raise QueryRefused(
            f"{len(statements)} statements were given: a query is exactly one "
            "(a PIVOT counts as one where it lists its values with IN)"
        )
    kind = statements[0].type.name
    if kind not in _READING:
        raise QueryRefused(f"{kind} is refused: a step log is read with SELECT (or EXPLAIN)")
    return statements[0]


def _run(connection: Any, statement: Any, params: Parameters, max_rows: int) -> Answer:
    connection.execute("BEGIN TRANSACTION READ ONLY")
    try:
        connection.execute(statement, params)
        return _fetch(connection, max_rows)
    finally:
        connection.execute("ROLLBACK")


def _fetch(connection: Any, max_rows: int) -> Answer:
    """Reads rows until there are no more, or more than the cap."""
    if not hasattr(connection, "to_arrow_reader"):
        table = connection.to_arrow_table()
        return Answer(table.slice(0, max_rows), table.num_rows > max_rows)
    reader = connection.to_arrow_reader(_BATCH_ROWS)
    batches, num_rows = [], 0
    while num_rows <= max_rows:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        batches.append(batch)
        num_rows += batch.num_rows
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
