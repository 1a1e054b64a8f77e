"""Threads beside the steps: each job when it is due, and an end that is an end."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from engine.connectors.transfer_threads import TransferThreads

PATIENCE = 30.0


def test_jobs_that_are_due_are_done_in_order() -> None:
    threads, done = TransferThreads(1), SimpleQueue[int]()
    for number in range(3):
        threads.submit(lambda number=number: done.put(number))  # type: ignore[misc]
    assert [done.get(timeout=PATIENCE) for _ in range(3)] == [0, 1, 2]
    threads.close()


def test_a_job_that_is_due_later_lets_others_by() -> None:
    threads, done = TransferThreads(1), SimpleQueue[str]()
    threads.submit(lambda: done.put("late"), delay_seconds=0.05)
    threads.submit(lambda: done.put("now"))
    assert [done.get(timeout=PATIENCE) for _ in range(2)] == ["now", "late"]
    threads.close()


def test_an_end_waits_for_what_is_due() -> None:
    threads, done, gate = TransferThreads(1), SimpleQueue[int](), threading.Event()
    threads.submit(gate.wait)
    threads.submit(lambda: done.put(1))
    threading.Timer(0.05, gate.set).start()
    threads.close(drain_seconds=PATIENCE)
    assert done.get_nowait() == 1


def test_an_end_drops_what_is_not_due() -> None:
    threads, done = TransferThreads(2), SimpleQueue[int]()
    threads.submit(lambda: done.put(1), delay_seconds=3600.0)
    threads.close(drain_seconds=PATIENCE)
    assert done.empty()


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    TransferThreads(3).close()
    assert set(threading.enumerate()) <= before
