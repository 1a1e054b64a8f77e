"""Rows of sources on their way into the log, by day and table.

Invariants:
    A description of an engine is in each day in which the engine has a row.
    Bounded: beyond `most` rows new ones are dropped and counted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from telemetry.records import EngineRow
from telemetry.store.files import day_of
from telemetry.store.writer import LogWriter

Row: TypeAlias = Mapping[str, Any]
Days: TypeAlias = dict[str, dict[str, list[Row]]]
"""Rows by UTC day and table."""


class SourceRows:
    """Takes rows from the threads of sources, and gives them to the one that writes."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._days: Days = {}
        self._num_rows = 0
        self._num_dropped = 0
        self._engines: dict[int, Row] = {}
        self._described: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return self._num_rows

    @property
    def num_dropped(self) -> int:
        """Rows that found no room, so far."""
        return self._num_dropped

    def describe(self, engine: int, row: EngineRow) -> None:
        """Takes what is known of an engine; the last description counts, from now on."""
        with self._lock:
            new = {"engine": engine, **asdict(row)}
            if self._engines.get(engine) != new:
                self._engines[engine] = new
                self._described[engine] = set()

    def add(self, table: str, rows: Iterable[Row]) -> int:
        """Takes rows, each with `engine` and `ts` (ns since the epoch); returns how many fitted."""
        num_taken, ts, day = 0, None, ""
        with self._lock:
            for row in rows:
                if self._most is not None and self._num_rows >= self._most:
                    self._num_dropped += 1
                    continue
                if row["ts"] != ts:  # rows of one scrape come together
                    ts = row["ts"]
                    day = day_of(ts)
                self._describe_in(day, row["engine"])
                self._put(day, table, row)
                num_taken += 1
        return num_taken

    def _describe_in(self, day: str, engine: int) -> None:
        known = self._engines.get(engine)
        if known is not None and day not in self._described[engine]:
            self._described[engine].add(day)
            self._put(day, "engines", known)

    def _put(self, day: str, table: str, row: Row) -> None:
        self._days.setdefault(day, {}).setdefault(table, []).append(row)
        self._num_rows += 1

    def take(self) -> Days:
        """Returns all rows, and forgets them."""
        with self._lock:
            days, self._days, self._num_rows = self._days, {}, 0
        return days

    def put_back(self, days: Days) -> None:
        """Takes back rows that could not be written: they come first again."""
        with self._lock:
            newer, self._days = self._days, days
            for day, tables in newer.items():
                for table, rows in tables.items():
                    self._days.setdefault(day, {}).setdefault(table, []).extend(rows)
            self._num_rows = sum(
                len(rows) for tables in self._days.values() for rows in tables.values()
            )


def write_days(writer: LogWriter, days: Days) -> None:
    """Writes rows into the files of their days, oldest first; each day is forgotten once it is in.

    Raises:
        duckdb.Error, LogBusy, LogDamaged: A day could not be written; `days` holds what is left.
    """
    for day in sorted(days):
        buffer = writer.new_rows(dense=False)
        for table, rows in days[day].items():
            buffer.add_rows(table, rows)
        writer.prepare(day)
        if buffer:
            writer.write(day, buffer, dense=False)
        del days[day]
