"""A collector is judged by whether commits leave the rings."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.errors import CollectorError
from telemetry.probe import collector as probed
from telemetry.probe.collector import Drained, collector_sign, drained_commits
from telemetry.probe.sign import Sign
from tests.telemetry.collector.builders import (
    RINGS,
    collect,
    collector_process,
    record,
    ring_for,
    wait_for_collector,
    wait_until,
)


class Answers:
    """A log whose positions stand one after the other, then stay; None is no answer."""

    def __init__(self, *answers: Drained | None) -> None:
        self._answers: Iterator[Drained | None] = iter(answers)
        self._last: Drained | None = None
        self.now = 100.0

    def __call__(self) -> Drained:
        self._last = next(self._answers, self._last)
        if self._last is None:
            raise CollectorError("none runs")
        return self._last

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def sign(self, published: Drained) -> Sign:
        """Returns what a probe says that watches for a second."""
        return collector_sign(
            published, self, patience_seconds=1.0, sleep=self.wait, clock=lambda: self.now
        )


@pytest.mark.parametrize(
    ("published", "answers", "ok"),
    [
        ({}, [{}], True),  # no ring: it answers, and that is all it can do
        ({1: 5}, [{1: 5}], True),
        ({1: 5}, [{1: 9}], True),  # the engine went on meanwhile
        ({1: 5}, [{1: 3}], False),
        ({1: 5}, [{}], False),  # a ring that it never read
        ({1: 5}, [{1: 3}, {1: 4}], True),  # behind, but it moves
        ({1: 5}, [None, None, {1: 5}], True),  # it was opening the log
        ({1: 5}, [None], False),
        ({}, [None], False),
        ({1: 5, 2: 5}, [{1: 1, 2: 1}, {1: 2, 2: 1}], True),
    ],
)
def test_progress_counts(published: Drained, answers: list[Drained | None], ok: bool) -> None:
    assert Answers(*answers).sign(published).ok is ok


def test_a_standstill_is_told_with_its_number() -> None:
    assert (
        Answers({1: 3}).sign({1: 5}).text
        == "the collector drains nothing: 2 commits wait; watched for 1 s"
    )


def test_it_is_watched_no_longer_than_its_patience() -> None:
    log = Answers({1: 3})
    log.sign({1: 5})
    assert log.now == 101.0


def test_a_slow_answer_is_asked_for_once() -> None:
    log = Answers({1: 3})

    def slowly() -> Drained:
        log.now += 9.0
        return log()

    found = collector_sign({1: 5}, slowly, sleep=log.wait, clock=lambda: log.now)
    assert (found.ok, log.now) == (False, 109.25)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    return tmp_path / "log"


def test_positions_come_from_a_live_collector(log: Path) -> None:
    ring = ring_for(log)
    record(ring, 0, 30)
    with collector_process(log):
        wait_for_collector(log)
        wait_until(lambda: drained_commits(log) == {ring.engine: 30})
    ring.close()


def test_a_log_without_a_collector_gives_no_answer(log: Path) -> None:
    collect(log)
    with pytest.raises(CollectorError, match="none runs for"):
        drained_commits(log)


def test_a_collector_that_is_stopped_is_not_waited_for(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probed, "PATIENCE_SECONDS", 0.3)
    with collector_process(log) as process:
        wait_for_collector(log)
        process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(CollectorError, match=r"silent for 0\.3 s"):
                drained_commits(log)
        finally:
            process.send_signal(signal.SIGCONT)
