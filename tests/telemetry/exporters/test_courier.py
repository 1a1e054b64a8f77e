"""A thread that does its work again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from telemetry.exporters.courier import Courier, longer


class Work:
    """Counts its calls, and lets the test wait for one."""

    def __init__(self, outcome: Callable[[], bool]) -> None:
        self.outcome = outcome
        self.num_calls = 0
        self.called = threading.Semaphore(0)

    def __call__(self) -> bool:
        self.num_calls += 1
        self.called.release()
        return self.outcome()


def test_it_works_at_its_pace_and_once_more_at_the_end() -> None:
    work = Work(lambda: True)
    courier = Courier("test", work, 3600)
    courier.stop()
    assert courier.join(30)
    assert work.num_calls == 1


def test_it_goes_on_after_an_error_and_tells_it_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise RuntimeError("no log")

    work = Work(fail)
    courier = Courier("spans", work, 0.001)
    for _ in range(3):
        assert work.called.acquire(timeout=30)
    courier.stop()
    assert courier.join(30)
    assert caplog.text.count("no log") == 1


def test_pauses_grow_while_nothing_gets_through_up_to_a_minute() -> None:
    pauses = [10.0]
    for _ in range(4):
        pauses.append(longer(pauses[-1], 10.0))
    assert pauses == [10, 20, 40, 60, 60]
    assert longer(300.0, 300.0) == 300


def test_an_end_is_not_waited_for_longer_than_asked() -> None:
    go, begun = threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return go.wait(30)

    courier = Courier("test", hang, 0.0)
    assert begun.wait(30)
    courier.stop()
    assert not courier.join(0.01)
    go.set()
    assert courier.join(30)
