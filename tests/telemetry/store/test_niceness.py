"""Threads of readers give way; the thread that writes does not."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from telemetry.store.niceness import READER_NICENESS, give_way, new_threads_give_way
from telemetry.store.writer import LogWriter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="niceness is a process's elsewhere")


def niceness(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def test_only_the_thread_that_asks_is_a_readers() -> None:
    found: list[int] = []

    def read() -> None:
        give_way()
        found.append(niceness(threading.get_native_id()))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert found == [READER_NICENESS]
    assert niceness(threading.get_native_id()) < READER_NICENESS


def test_threads_that_start_meanwhile_are() -> None:
    done = threading.Event()
    with new_threads_give_way():
        thread = threading.Thread(target=done.wait)
        thread.start()
    assert thread.native_id is not None
    try:
        assert niceness(thread.native_id) == READER_NICENESS
    finally:
        done.set()
        thread.join()


def test_a_thread_that_has_ended_is_no_error() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.native_id is not None
    give_way(thread.native_id)


@pytest.mark.skipif(os.cpu_count() == 1, reason="DuckDB starts no threads of its own on one core")
def test_duckdbs_threads_are_those_of_readers(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/task"))
    writer = LogWriter(tmp_path, ["2026-01-02"], dense=False)
    try:
        new = {int(name) for name in set(os.listdir("/proc/self/task")) - before}
        assert new
        assert {niceness(thread) for thread in new} == {READER_NICENESS}
    finally:
        writer.close()
