"""Threads of readers give way; the thread that writes does not. A collector is expendable."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from telemetry.store.niceness import (
    EXPENDABLE,
    READER_NICENESS,
    give_way,
    new_threads_give_way,
)
from telemetry.store.writer import LogWriter
from tests.telemetry.collector.builders import collector_process, wait_for_collector

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


def test_a_collector_is_ended_before_the_engines(tmp_path: Path) -> None:
    with collector_process(tmp_path / "log") as collector:
        wait_for_collector(tmp_path / "log")
        adjusted = int(Path(f"/proc/{collector.pid}/oom_score_adj").read_text())
    assert adjusted == (int(Path("/proc/self/oom_score_adj").read_text()) or EXPENDABLE)
