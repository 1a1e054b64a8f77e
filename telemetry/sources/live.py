"""Sources inside a collector: threads that listen or ask, and rows that go into its log.

A source's rows are written with each flush. What could not be written is kept and written later,
up to `MOST_ROWS`; a row that the log does not take costs its batch, and is told.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import duckdb

from telemetry.sources.rows import SourceRows, write_days
from telemetry.store.collector_status import SourceStatus
from telemetry.store.writer import LogWriter

MOST_ROWS = 500_000
"""Rows that wait for the log at most: some minutes of ten vLLM pages a second."""

_log = logging.getLogger("stepscope.collector")
_BAD_ROWS = (duckdb.DataError, duckdb.InvalidInputException)


class LiveSource(Protocol):
    """Something outside that a collector listens to, or asks, while it runs."""

    def start(self, rows: SourceRows) -> None:
        """Begins; rows go to `rows` from threads of the source's own.

        Raises:
            StepscopeError: It cannot, as its address is taken, for example.
        """

    def close(self) -> None:
        """Ends the threads."""

    @property
    def is_well(self) -> bool:
        """Whether it gets what it is there for, as far as it can tell."""

    def status(self) -> str:
        """Returns in one line how it does, for `stepscope doctor`."""


class LiveSources:
    """The sources of one collector."""

    def __init__(self, sources: Sequence[LiveSource]) -> None:
        self._sources = sources
        self._rows = SourceRows(MOST_ROWS)
        self._num_told = 0

    def __bool__(self) -> bool:
        return bool(self._sources)

    def start(self) -> None:
        """Starts all sources.

        Raises:
            StepscopeError: One of them cannot.
        """
        for source in self._sources:
            source.start(self._rows)

    def write(self, writer: LogWriter) -> None:
        """Writes what has come since the last call, a transaction a day.

        Raises:
            duckdb.Error, LogBusy, LogDamaged: The log failed; the rows are kept.
        """
        self._tell_dropped()
        days = self._rows.take()
        try:
            write_days(writer, days)
        except _BAD_ROWS as error:
            num_rows = sum(len(rows) for tables in days.values() for rows in tables.values())
            _log.warning("%s rows of sources do not fit the log: %s", f"{num_rows:,}", error)
        except BaseException:
            self._rows.put_back(days)
            raise

    def _tell_dropped(self) -> None:
        num_new = self._rows.num_dropped - self._num_told
        if num_new:
            self._num_told += num_new
            _log.warning(
                "rows of sources that the log did not take in time, and were dropped: %s",
                f"{num_new:,}",
            )

    def statuses(self) -> list[SourceStatus]:
        """Returns how each source does."""
        return [
            SourceStatus(text=source.status(), is_well=source.is_well) for source in self._sources
        ]

    def close(self) -> None:
        """Ends all sources."""
        for source in self._sources:
            source.close()
