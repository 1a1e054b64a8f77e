"""The collector's hand in the step log: one DuckDB instance that writes, and lends out readers.

Invariants:
    A flush is one transaction a file, and the read position of each ring is part of it.
    Only days that are being written are attached for writing. The instance reaches no file but
    those attached: external access is off from then on, so another day needs a new instance.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from telemetry.errors import LogBusy, LogDamaged
from telemetry.ring.batch import Position
from telemetry.store.files import DayFile, attach, day_files, is_locked
from telemetry.store.guard import COLLECTOR_MEMORY_BYTES, lock_down
from telemetry.store.lean import BUFFERED, create_lean_table, lean_batch
from telemetry.store.lean import TABLE as DENSE_TABLE
from telemetry.store.niceness import new_threads_give_way
from telemetry.store.rows import Batch, RowBuffer
from telemetry.store.schema import add_missing_columns, create_tables, insert_statement, tables_of
from telemetry.store.views import create_log_views

_log = logging.getLogger("stepscope.collector")


class LogWriter:
    """The files of a step log, opened for writing."""

    def __init__(self, log: Path, days: Iterable[str], *, dense: bool) -> None:
        """Opens the log in `log`, the files of `days` for writing.

        Raises:
            LogBusy: Another process has one of the files open.
            LogDamaged: One of them is no step log, or there is no room.
        """
        self.log = log
        self._dense = dense
        self._days = set(days)
        self._readers: set[Any] = set()
        self._readers_done = threading.Condition()
        self._is_open = False
        self._open()

    def _open(self) -> None:
        with new_threads_give_way():  # the writing thread works on its own inserts itself
            self._connection = duckdb.connect(":memory:")
        try:
            self._attach_all()
            # Text columns are text: guessing from a sample fails where most of it is NULL.
            self._connection.execute("SET pandas_analyze_sample = 0")
            lock_down(self._connection, self.log / "spill", COLLECTOR_MEMORY_BYTES)
        except duckdb.Error as error:
            self._connection.close()
            if is_locked(error):
                raise LogBusy(
                    f"the step log in {self.log} is open in another process: close it there "
                    f"({error})"
                ) from error
            raise LogDamaged(
                f"the step log in {self.log} cannot be written: {error}. Move the file away if it "
                "is damaged, or make room if the disk is full"
            ) from error
        except BaseException:
            self._connection.close()
            raise
        self._has_views = False
        self._is_open = True

    def _attach_all(self) -> None:
        writable = {
            DayFile(day, dense, self.log)
            for day in self._days
            for dense in ((False, True) if self._dense else (False,))
        }
        self._attached: list[DayFile] = []
        for file in sorted(writable | set(day_files(self.log))):
            if file in writable:
                attach(self._connection, file, read_only=False)
                self._create(file)
            elif not self._attach_closed(file):
                continue
            self._attached.append(file)

    def _attach_closed(self, file: DayFile) -> bool:
        """Attaches a day that is not written any more; a damaged one is left out, and told."""
        try:
            attach(self._connection, file, read_only=True)
        except duckdb.Error as error:
            if is_locked(error):
                raise
            _log.warning("%s is left out: %s", file.path, error)
            return False
        return True

    def _create(self, file: DayFile) -> None:
        for statement in create_tables(file.database, file.dense):
            self._connection.execute(statement)
        if file.dense:
            self._connection.execute(create_lean_table(file.database))
        existing = self._connection.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ?",
            [file.database],
        ).fetchall()
        for statement in add_missing_columns(file.database, file.dense, existing):
            self._connection.execute(statement)

    # ----------------------------------------------------------------------------- writing

    def new_rows(self, dense: bool) -> RowBuffer:
        """Returns an empty buffer for a day's main or dense file."""
        return RowBuffer(BUFFERED if dense else tables_of(False))

    def prepare(self, day: str) -> None:
        """Makes sure that a day can be written; opens a new instance where it cannot.

        Running queries of the old instance are interrupted.

        Raises:
            LogBusy: Another process has one of the files open. May be called again.
        """
        if day in self._days and self._is_open:
            return
        self.close()
        self._days = {day, max(self._days, default=day)}
        self._open()

    def write(self, day: str, rows: RowBuffer, *, dense: bool) -> None:
        """Writes all of `rows` into one file, in one transaction."""
        database = DayFile(day, dense, self.log).database
        connection = self._connection
        connection.execute("BEGIN TRANSACTION")
        try:
            for batch in rows.take():
                self._insert(database, batch)
            self._commit()
        except BaseException:
            with suppress(duckdb.Error):  # what failed ended it; that is the error to tell
                connection.execute("ROLLBACK")
            raise

    def _insert(self, database: str, batch: Batch) -> None:
        if batch.table == DENSE_TABLE:
            batch = lean_batch(batch)
        self._connection.register("new_rows", batch.arrays)
        if batch.table in _REPLACED:
            self._remove_old(database, batch.table)
        self._connection.execute(
            insert_statement(
                database, batch.table, batch.columns, batch.with_nulls, source="new_rows"
            )
        )

    def _remove_old(self, database: str, table: str) -> None:
        self._connection.execute(
            f"DELETE FROM {database}.{table} WHERE engine IN (SELECT engine FROM new_rows)"
        )

    def remove_import(self, day: str, number: int, tables: Iterable[str]) -> None:
        """Removes the rows that an import left in a day that is open for writing."""
        database = DayFile(day, False, self.log).database
        for table in tables:
            self._connection.execute(
                f"DELETE FROM {database}.{table} WHERE import_id = ?", [number]
            )

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    # ----------------------------------------------------------------------------- reading

    def positions(self, *, dense: bool) -> dict[int, tuple[Position, int, bool]]:
        """Returns per engine: how far its ring was read, description version, whether it is closed.

        The furthest position of all days counts.
        """
        found: dict[int, tuple[Position, int, bool]] = {}
        for file in self._attached:
            if file.dense is not dense:
                continue
            for (
                engine,
                commits,
                steps,
                events,
                dense_rows,
                description,
                closed,
            ) in self._connection.execute(
                "SELECT engine, num_commits, num_steps, num_events, num_step_requests, "
                f"description, closed FROM {file.database}.drains"
            ).fetchall():
                position = Position(commits, steps, events, dense_rows)
                known = found.get(engine)
                if known is None or known[0].commits <= commits:
                    found[engine] = (position, description, closed or bool(known and known[2]))
        return found

    def files_in_use(self, engines: Iterable[int]) -> set[DayFile]:
        """Returns the files that are being written, or that say how far these rings were read."""
        wanted = set(engines)
        found = {file for file in self._attached if file.day in self._days}
        for dense in (False, True):
            newest: dict[int, tuple[int, DayFile]] = {}
            for file in self._attached:
                if file.dense is dense:
                    for engine, commits in self._connection.execute(
                        f"SELECT engine, num_commits FROM {file.database}.drains"
                    ).fetchall():
                        if engine in wanted and newest.get(engine, (-1, file))[0] <= commits:
                            newest[engine] = (commits, file)
            found.update(file for _, file in newest.values())
        return found

    def remove(self, files: Iterable[DayFile]) -> dict[DayFile, OSError]:
        """Removes files from the log, and returns those that could not be.

        Running queries are interrupted, as by `prepare`.

        Raises:
            LogBusy: Another process has opened one of the other files meanwhile.
        """
        self.close()
        failures = {}
        for file in files:
            try:
                file.wal_path.unlink(missing_ok=True)
                file.path.unlink(missing_ok=True)
            except OSError as error:
                failures[file] = error
        self._open()
        return failures

    @property
    def is_read(self) -> bool:
        """Whether a query is running."""
        return bool(self._readers)

    @contextmanager
    def reader(self) -> Iterator[Any]:
        """Lends a connection of its own for one query; the instance waits for it to come back."""
        with self._readers_done:
            if not self._is_open:
                raise LogBusy(f"the step log in {self.log} is being opened: ask again")
            cursor = self._connection.cursor()
            if not self._has_views:
                create_log_views(cursor, self._attached)
                self._has_views = True
            self._readers.add(cursor)
        try:
            yield cursor
        finally:
            cursor.close()
            with self._readers_done:
                self._readers.discard(cursor)
                self._readers_done.notify_all()

    def close(self) -> None:
        """Interrupts running queries, writes all to the files proper, and lets go of them."""
        if not self._is_open:
            return
        with self._readers_done:
            self._is_open = False
            for cursor in self._readers:
                cursor.interrupt()
            self._readers_done.wait_for(lambda: not self._readers, timeout=10.0)
            try:
                for file in self._attached:
                    if file.day in self._days and (not file.dense or self._dense):
                        self._connection.execute(f"CHECKPOINT {file.database}")
            finally:  # an instance that broke on a full disk keeps its files locked until then
                self._connection.close()


_REPLACED = frozenset({"drains", "engines", "exports"})
"""Tables with one row an engine and file: the newest one counts."""
