"""Rows of a live source, for a test that waits until they have come."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from telemetry.sources.rows import Row, SourceRows

PATIENCE_SECONDS = 120.0


class WaitingRows(SourceRows):
    """Takes rows, and wakes whoever waits for them."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__(most)
        self.taken: list[Row] = []
        self._news = threading.Condition()

    def add(self, table: str, rows: Iterable[Row]) -> int:
        rows = list(rows)
        num_taken = super().add(table, rows)
        with self._news:
            self.taken.extend(rows[:num_taken])
            self._news.notify_all()
        return num_taken

    def wait_for(self, num_rows: int) -> list[Row]:
        """Returns the rows once there are so many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.taken) >= num_rows, PATIENCE_SECONDS)
            return list(self.taken)

    def wait_for_some(self, seconds: float) -> bool:
        """Returns whether there are rows, after so long at most."""
        with self._news:
            return self._news.wait_for(lambda: bool(self.taken), seconds)
