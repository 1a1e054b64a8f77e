"""Removes what the limits say, between two flushes, and writes down what is gone.

The collector has every day open, so a file is removed by way of its writer: let go of all, unlink,
open again. That interrupts running queries, so removal waits for them, though not for ever.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from telemetry.collector.retention import (
    CHECK_SECONDS,
    PATIENCE_SECONDS,
    Removal,
    RetentionLimits,
    removals,
    stored_files,
)
from telemetry.store.files import day_of
from telemetry.store.writer import LogWriter

_log = logging.getLogger("stepscope.collector")


class Remover:
    """Looks once a minute whether a log holds more than it may.

    `wall` is the wall clock in ns since the Unix epoch, `monotonic` a clock in seconds.
    """

    def __init__(
        self,
        log: Path,
        limits: RetentionLimits,
        *,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._limits = limits
        self._wall = wall
        self._monotonic = monotonic
        self._next = float("-inf")
        self._waiting_since: float | None = None

    def remove_due(self, writer: LogWriter, engines: Iterable[int]) -> list[Removal]:
        """Removes what is due, and returns it. `engines` are those whose rings are being drained.

        Raises:
            LogBusy: Another process opened a file meanwhile; the files are gone all the same.
            duckdb.Error: What is gone could not be written down.
        """
        now = self._monotonic()
        if self._limits == RetentionLimits() or now < self._next:
            return []
        due = removals(
            stored_files(self._log),
            self._limits,
            now_ns=self._wall(),
            in_use=writer.files_in_use(engines),
        )
        if due and self._has_to_wait(writer, now):
            return []
        self._next, self._waiting_since = now + CHECK_SECONDS, None
        return self._remove(writer, due) if due else []

    def _has_to_wait(self, writer: LogWriter, now: float) -> bool:
        if self._waiting_since is None:
            self._waiting_since = now
        return writer.is_read and now - self._waiting_since < PATIENCE_SECONDS

    def _remove(self, writer: LogWriter, due: list[Removal]) -> list[Removal]:
        failures = writer.remove([removal.stored.file for removal in due])
        for file, error in failures.items():
            _log.warning("%s could not be removed: %s", file.path, error)
        gone = [removal for removal in due if removal.stored.file not in failures]
        for removal in gone:
            _log.info("removed %s: %s", removal.stored.file.path, removal.limit_name)
        self._write_down(writer, gone)
        return gone

    def _write_down(self, writer: LogWriter, gone: list[Removal]) -> None:
        ts = self._wall()
        rows = writer.new_rows(dense=False)
        rows.add_rows(
            "removed_days",
            [
                {
                    "ts": ts,
                    "day": removal.stored.file.day,
                    "is_dense": removal.stored.file.dense,
                    "size_bytes": removal.stored.size_bytes,
                    "limit_name": removal.limit_name,
                }
                for removal in gone
            ],
        )
        writer.prepare(day_of(ts))
        writer.write(day_of(ts), rows, dense=False)
