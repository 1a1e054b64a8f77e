"""Findings that others post: checked at the door, written by the loop, acknowledged once committed.

Only the collector's loop writes the log, so whoever posts waits for its next flush. What waits is
bounded, and a collector that cannot write says so instead of keeping it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import duckdb

from telemetry.errors import LogBusy, PostRefused, StepscopeError
from telemetry.store.files import day_of
from telemetry.store.posting import checked, write_findings
from telemetry.store.writer import LogWriter

MOST_WAITING = 32
"""Posts that may wait at once."""
PATIENCE_SECONDS = 10.0
"""How long a post waits to be written."""
MOST_OFF_NS = 3600 * 1_000_000_000
"""How far the time of a row may be from this clock: a row of the future would hide all later ones.
"""


@dataclass(slots=True)
class _Waiting:
    """A post on its way."""

    rows: list[dict[str, Any]]
    done: threading.Event = field(default_factory=threading.Event)
    error: StepscopeError | None = None

    def end(self, error: StepscopeError | None) -> None:
        self.error = error
        self.done.set()


class Inbox:
    """Posts of many threads, written by one."""

    def __init__(self, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether somebody waits to be written."""
        return bool(self._waiting)

    def post(self, rows: Any) -> int:
        """Returns how many rows were committed; waits until they are.

        Raises:
            PostRefused: They may not be stored.
            LogBusy: They were not written in time; none of them will be.
        """
        waiting = _Waiting(checked(rows))
        _check_times(waiting.rows)
        with self._lock:
            if self._is_closed or len(self._waiting) >= MOST_WAITING:
                raise LogBusy("the collector takes no more posts now: ask again later")
            self._waiting.append(waiting)
        if not waiting.done.wait(self._patience):
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                    raise LogBusy("the step log cannot be written now: ask again later")
            waiting.done.wait()  # it is being written at this moment
        if waiting.error is not None:
            raise waiting.error
        return len(waiting.rows)

    def write(self, writer: LogWriter) -> None:
        """Writes what waits. Rows that the log does not take cost their own post alone.

        Raises:
            duckdb.Error, LogBusy: The log cannot be written; whoever waits has been told.
        """
        while (waiting := self._next()) is not None:
            try:
                write_findings(writer, waiting.rows, day_of(time.time_ns()))
            except (duckdb.DataError, duckdb.InvalidInputException) as error:
                waiting.end(PostRefused(f"the step log does not take these rows: {error}"))
            except (duckdb.Error, StepscopeError) as error:
                waiting.end(LogBusy(f"the step log cannot be written: {error}: ask again"))
                raise
            except BaseException:
                waiting.end(LogBusy("the collector ends: ask again"))
                raise
            else:
                waiting.end(None)

    def _next(self) -> _Waiting | None:
        with self._lock:
            return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        """Tells whoever waits that it is too late."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.end(LogBusy("the collector ends: ask again"))


def _check_times(rows: list[dict[str, Any]]) -> None:
    now = time.time_ns()
    for number, row in enumerate(rows):
        off_ns = row["ts"] - now
        if abs(off_ns) > MOST_OFF_NS:
            raise PostRefused(
                f"row {number} of the post is {off_ns / 1e9:+,.0f} s off the collector's clock: "
                f"at most {MOST_OFF_NS / 1e9:,.0f} s are allowed; set the clock"
            )
