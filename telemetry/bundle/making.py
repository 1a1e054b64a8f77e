"""Writes a bundle: asks the log piece by piece, salts, and puts the rows into one DuckDB file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from telemetry.bundle.contents import CONDITIONS, moment_column, select
from telemetry.bundle.salting import Salt
from telemetry.errors import StepscopeError
from telemetry.log_records import BundleInfoRow
from telemetry.query.window import Window
from telemetry.records import NULLS, columns_of
from telemetry.store import Log
from telemetry.store.bundle import INFO_TABLE, create_bundle_tables
from telemetry.store.files import DENSE_BLOCK_BYTES, STORAGE_VERSION
from telemetry.store.lean import BUFFERED, TABLE, lean_batch
from telemetry.store.rows import RowBuffer
from telemetry.store.schema import insert_statement

MAX_ROWS = 200_000
"""Rows of a piece: the log has to be opened with this limit, see `make_bundle`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """What a bundle holds."""

    path: Path
    size_bytes: int
    num_rows: dict[str, int]
    """Rows of each table."""


def make_bundle(log: Log, window: Window, out: Path, *, salted: bool = True) -> BundleReport:
    """Writes the rows of a window of a log into the file `out`, mode 0600, whole or not at all.

    Args:
        log: opened with `Limits(max_rows=MAX_ROWS)`, or more where memory allows.
        salted: replace names of requests, sessions, traces and hosts.

    Raises:
        StepscopeError: `out` exists, or cannot be written; or the log has nothing in the window.
    """
    if out.exists():
        raise StepscopeError(f"{out} exists: name another file with --out, or remove it")
    temporary = out.with_name(f"{out.name}.{os.getpid()}.tmp")
    salt = Salt() if salted else None
    try:
        with _new_file(temporary) as connection:
            num_rows = {table: _copy(connection, log, table, window, salt) for table in CONDITIONS}
            if not num_rows["engines"]:
                raise StepscopeError("no engine ran in that window: choose another one")
            info = BundleInfoRow(
                from_ts=window.from_ns,
                until_ts=window.until_ns,
                made_ts=time.time_ns(),
                is_salted=salted,
            )
            _insert_info(connection, info)
        os.rename(temporary, out)
    except (OSError, duckdb.Error) as error:
        raise StepscopeError(f"{out} cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
        temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)
    return BundleReport(path=out, size_bytes=out.stat().st_size, num_rows=num_rows)


@contextmanager
def _new_file(path: Path) -> Iterator[Any]:
    """Yields a connection to a new file with the tables of a bundle, complete afterwards."""
    quoted = str(path).replace("'", "''")
    before = os.umask(0o077)
    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute(
                f"ATTACH '{quoted}' AS bundle "
                f"(STORAGE_VERSION '{STORAGE_VERSION}', BLOCK_SIZE {DENSE_BLOCK_BYTES})"
            )
            for statement in create_bundle_tables("bundle"):
                connection.execute(statement)
            yield connection
            connection.execute("CHECKPOINT bundle")
            connection.execute("DETACH bundle")
    finally:
        os.umask(before)


def _copy(connection: Any, log: Log, table: str, window: Window, salt: Salt | None) -> int:
    num_rows = 0
    for rows in _pieces(log, table, window):
        kept = rows if salt is None else salt.apply(table, rows)
        if table == TABLE:
            _insert_dense(connection, kept)
        else:
            connection.register("new_rows", kept)
            connection.execute(f"INSERT INTO bundle.{table} BY NAME SELECT * FROM new_rows")
            connection.unregister("new_rows")
        num_rows += len(kept)
    return num_rows


def _insert_dense(connection: Any, rows: pa.Table) -> None:
    """Stores dense rows lean, as the collector does."""
    buffer = RowBuffer(BUFFERED)
    types = {column.name: column.dtype for column in BUFFERED[TABLE]}
    buffer.add(
        TABLE,
        {
            name: rows[name].fill_null(NULLS[dtype]).to_numpy().astype(dtype)
            for name, dtype in types.items()
        },
    )
    for batch in map(lean_batch, buffer.take()):
        connection.register("new_rows", batch.arrays)
        connection.execute(
            insert_statement(
                "bundle", batch.table, batch.columns, batch.with_nulls, source="new_rows"
            )
        )
        connection.unregister("new_rows")


def _pieces(log: Log, table: str, window: Window) -> Iterator[pa.Table]:
    """Yields a table's rows in pieces that fit the log's limit: one too large is halved."""
    parameters = {"from_ns": window.from_ns, "until_ns": window.until_ns}
    moment = moment_column(table)
    if moment is None:
        yield _asked(log, select(table), parameters)
        return
    (row,) = log.query(f"SELECT min({moment}) AS first FROM {table}").to_pylist()
    if row["first"] is None:
        return
    waiting = [(min(row["first"], window.from_ns), _last(table, window))]
    while waiting:
        first, last = waiting.pop()
        rows = _asked(log, select(table), {**parameters, "first": first, "last": last})
        if log.truncated and first < last:
            middle = (first + last) // 2
            waiting += [(middle + 1, last), (first, middle)]
        elif len(rows):
            yield rows


def _last(table: str, window: Window) -> int:
    """Returns the last moment that a table's rows may have: a finding is told again and again."""
    return window.until_ns if table != "findings" else (1 << 63) - 1


def _asked(log: Log, sql: str, parameters: dict[str, int]) -> pa.Table:
    """Asks with those parameters that the statement names: DuckDB refuses others."""
    return log.query(sql, {name: v for name, v in parameters.items() if f"${name}" in sql})


def _insert_info(connection: Any, info: BundleInfoRow) -> None:
    names = [column.name for column in columns_of(BundleInfoRow)]
    marks = ", ".join("?" for _ in names)
    connection.execute(
        f"INSERT INTO bundle.{INFO_TABLE} ({', '.join(names)}) VALUES ({marks})",
        [getattr(info, name) for name in names],
    )
