"""Posts wait for the collector's loop, and whoever waits hears what became of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.collector.inbox import MOST_WAITING, Inbox
from telemetry.errors import LogBusy
from telemetry.store.files import DayFile, day_of
from telemetry.store.writer import LogWriter
from tests.telemetry.collector.builders import rows, wait_until
from tests.telemetry.posts import FINDING, change


class Poster:
    """Posts in a thread of its own."""

    def __init__(self, inbox: Inbox, posted: list[dict[str, Any]]) -> None:
        self.result: int | Exception | None = None
        self._thread = threading.Thread(target=self._post, args=(inbox, posted))
        self._thread.start()

    def _post(self, inbox: Inbox, posted: list[dict[str, Any]]) -> None:
        try:
            self.result = inbox.post(posted)
        except LogBusy as error:
            self.result = error

    def wait(self) -> int | Exception | None:
        self._thread.join(timeout=20)
        return self.result


def waiting(inbox: Inbox, act: Callable[[], object]) -> int | Exception | None:
    """Returns what a post hears that waits while something is done."""
    poster = Poster(inbox, [change()])
    wait_until(lambda: inbox.is_waiting)
    try:
        act()
    finally:
        heard = poster.wait()
    return heard


def test_a_post_is_acknowledged_when_it_is_written(tmp_path: Path) -> None:
    inbox, writer = Inbox(), LogWriter(tmp_path, [], dense=False)
    assert waiting(inbox, lambda: inbox.write(writer)) == 1
    writer.close()
    assert rows(tmp_path, "SELECT finding FROM findings") == [(FINDING,)]


def test_a_post_that_nobody_writes_is_given_back() -> None:
    inbox = Inbox(patience_seconds=0.05)
    with pytest.raises(LogBusy, match="cannot be written now"):
        inbox.post([change()])
    assert not inbox.is_waiting


def test_a_log_that_breaks_is_told_to_whoever_waits(tmp_path: Path) -> None:
    today = day_of(time.time_ns())
    inbox, writer = Inbox(), LogWriter(tmp_path, [today], dense=False)
    writer._connection.execute(f"DETACH {DayFile(today, False, tmp_path).database}")

    def write() -> None:
        with pytest.raises(duckdb.Error):
            inbox.write(writer)

    assert isinstance(waiting(inbox, write), LogBusy)


def test_the_end_is_told_to_whoever_waits() -> None:
    inbox = Inbox()
    assert isinstance(waiting(inbox, inbox.close), LogBusy)
    with pytest.raises(LogBusy, match="takes no more posts"):
        inbox.post([change()])


def test_what_waits_is_bounded() -> None:
    inbox = Inbox()
    posters = [Poster(inbox, [change()]) for _ in range(MOST_WAITING)]
    wait_until(lambda: len(inbox._waiting) == MOST_WAITING)
    with pytest.raises(LogBusy, match="takes no more posts"):
        inbox.post([change()])
    inbox.close()
    assert all(isinstance(poster.wait(), LogBusy) for poster in posters)
