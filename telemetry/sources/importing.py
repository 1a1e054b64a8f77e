"""One import: what lies in files becomes rows of a step log, once.

The same content is not imported twice: its digest is the import's number, which each of its rows
carries. An import that was killed left rows and no row in `imports`; the next one of the same
content removes them first, so nothing is doubled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

import duckdb

from telemetry.errors import CollectorError, ImportRefused, LogBusy, LogDamaged
from telemetry.records import EngineRow
from telemetry.sources.identity import content_number
from telemetry.sources.rows import Row, SourceRows, write_days
from telemetry.sources.telling import ImportTold
from telemetry.store.files import day_of
from telemetry.store.lock import take_lock
from telemetry.store.writer import LogWriter

ROWS_PER_FLUSH = 50_000
IMPORTED = ("samples", "log_lines", "engine_spans", "kv_events")
"""Tables whose rows carry the number of their import."""

_DONE = "SELECT name, strftime(utc(ts), '%Y-%m-%d %H:%M:%S') FROM imports WHERE import_id = $number"
_MOMENTS = """
SELECT DISTINCT engine, ts FROM samples
WHERE source = $source AND ts BETWEEN $from_ts AND $until_ts
"""
_BEGUN = "SELECT DISTINCT strftime(utc(ts), '%Y-%m-%d') FROM ({})".format(
    " UNION ALL ".join(f"SELECT ts FROM {table} WHERE import_id = $number" for table in IMPORTED)
)


class Import:
    """Carries one import out. Use as a context manager; one that ends in an error is undone.

    Invariants:
        Holds the log's lock from `__enter__` to `__exit__`, as a collector does.
    """

    def __init__(self, log: Path, *, source: str, name: str, digest: bytes, unit: str) -> None:
        """Prepares an import; nothing is touched yet.

        Args:
            log: directory of the step log; made if missing.
            source: kind of the source, like "prometheus".
            name: what is read, for people.
            digest: digest of the content, at least 8 bytes.
            unit: what is counted as read: pages, lines, spans, messages.
        """
        self.log = log.absolute()
        self.number = content_number(digest)
        self.told = ImportTold(source=source, name=name, unit=unit)
        self._rows = SourceRows()
        self._days: set[str] = set()

    def __enter__(self) -> Import:
        """Takes the log, and removes what a killed import of the same content left in it.

        Raises:
            ImportRefused: A collector runs there, or the content has been imported already.
        """
        os.umask(0o077)  # DuckDB makes files when it needs them: they are for their owner alone
        self.log.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock_fd = take_lock(self.log)
        except CollectorError as error:
            raise ImportRefused(
                f"{error}. An import writes the log itself: name another directory with --log, or "
                "stop that collector"
            ) from None
        try:
            self._writer = LogWriter(self.log, [], dense=False)
        except BaseException:
            os.close(self._lock_fd)
            raise
        try:
            self._begin()
        except BaseException:
            self._let_go()
            raise
        return self

    def describe(self, engine: int, row: EngineRow) -> None:
        """Takes what is known of an engine; the last description counts."""
        self._rows.describe(engine, row)

    def moments(self, source: str, from_ts: int, until_ts: int) -> dict[int, set[int]]:
        """Returns when, in a stretch of `ts`, the log has samples of a source, by engine.

        For a source whose next import may hold again what the last one held.

        Raises:
            duckdb.Error: The log cannot be read.
        """
        found: dict[int, set[int]] = {}
        with self._writer.reader() as cursor:
            for engine, ts in cursor.execute(
                _MOMENTS, {"source": source, "from_ts": from_ts, "until_ts": until_ts}
            ).fetchall():
                found.setdefault(engine, set()).add(ts)
        return found

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Takes rows of a table of `IMPORTED`, each with `engine` and `ts`; writes now and then.

        Raises:
            duckdb.Error, LogDamaged: The log cannot be written.
        """
        numbered = [{**row, "import_id": self.number} for row in rows]
        self.told.rows(row["ts"] for row in numbered)
        self._rows.add(table, numbered)
        if len(self._rows) >= ROWS_PER_FLUSH:
            self._flush()

    def _flush(self) -> None:
        days = self._rows.take()
        self._days.update(days)
        write_days(self._writer, days)

    def _begin(self) -> None:
        """Removes what a killed import of the same content left.

        Raises:
            ImportRefused: The content is in the log, whole.
        """
        with self._writer.reader() as cursor:
            done = cursor.execute(_DONE, {"number": self.number}).fetchone()
            begun = cursor.execute(_BEGUN, {"number": self.number}).fetchall()
        if done is not None:
            raise ImportRefused(
                f"the content of {self.told.name} is in {self.log} already: imported from "
                f"{done[0]} at {done[1]} UTC. Name another directory with --log to have it twice"
            )
        self._remove_from(day for (day,) in begun)

    def _remove_from(self, days: Iterable[str]) -> None:
        for day in sorted(days):
            self._writer.prepare(day)
            self._writer.remove_import(day, self.number, IMPORTED)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._flush()
                self._finish()
            else:
                self._undo()
        finally:
            self._let_go()

    def _finish(self) -> None:
        """Writes the row that says that all of it is in."""
        row = self.told.row(self.number)
        write_days(self._writer, {day_of(row.ts): {"imports": [asdict(row)]}})

    def _undo(self) -> None:
        """Removes what was written, unless the log itself is what failed: the next one does it."""
        self._rows.take()
        with suppress(duckdb.Error, LogBusy, LogDamaged):
            self._remove_from(self._days)

    def _let_go(self) -> None:
        try:
            self._writer.close()
        finally:
            os.close(self._lock_fd)
