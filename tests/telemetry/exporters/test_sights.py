"""What a ring's header says of its engine: with real rings, and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.collector.rings import AttachedRing
from telemetry.exporters.sights import BLIND_SECONDS, BLIND_STEPS, MOST_MARKS, RingSights, Sight
from telemetry.ring import RingReader, RingRecorder
from telemetry.vocabulary import Phase
from tests.telemetry.collector.builders import record
from tests.telemetry.ring.builders import small_ring


class Watched:
    """A ring, its reader and a watch."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self.recorder: RingRecorder = small_ring(directory)
        self.ring = AttachedRing(RingReader(self.recorder.path))
        self.sights = RingSights(lambda: self.now)

    def drain(self) -> None:
        while (batch := self.ring.reader.read(self.ring.position)) is not None:
            self.ring.position = batch.position

    def look(self, seconds: float = 0.0) -> Sight:
        self.now += seconds
        self.sights.observe([self.ring])
        return self.sights.read()[self.ring.engine]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.recorder.close()
    watched.ring.close()


def test_a_ring_that_is_drained_each_time_has_no_lag(watched: Watched) -> None:
    for number in range(5):
        record(watched.recorder, number, number + 1)
        watched.drain()
        assert watched.look(0.25).lag_seconds == 0


def test_lag_is_the_age_of_the_oldest_that_may_be_missing(watched: Watched) -> None:
    watched.look()
    record(watched.recorder, 0, 1)
    assert watched.look(1.0).lag_seconds == 1.0
    assert watched.look(2.0).lag_seconds == 3.0
    watched.drain()
    record(watched.recorder, 1, 2)  # an engine that never pauses is always one ahead
    assert watched.look(0.5).lag_seconds == 0.5


def test_lag_grows_while_nobody_looks(watched: Watched) -> None:
    watched.look()
    watched.now += 60
    assert watched.sights.read()[watched.ring.engine].lag_seconds == 60


def test_a_drain_that_hangs_costs_bounded_memory_and_a_true_lag(watched: Watched) -> None:
    record(watched.recorder, 0, 1)
    for _ in range(MOST_MARKS + 10):
        watched.look(1.0)
    assert watched.look(1.0).lag_seconds == MOST_MARKS + 10
    (watch,) = watched.sights._watches.values()
    assert len(watch.marks) == MOST_MARKS


def test_an_engine_is_up_until_it_says_goodbye(watched: Watched) -> None:
    assert watched.look().is_up
    watched.recorder.close()
    assert not watched.look().is_up


def test_an_engine_that_steps_unrecorded_is_blind(watched: Watched) -> None:
    record(watched.recorder, 0, 1)
    assert not watched.look().is_blind
    watched.recorder.enter_phase(BLIND_STEPS + 1, Phase.forward)
    assert not watched.look(BLIND_SECONDS).is_blind
    assert watched.look(0.25).is_blind
    record(watched.recorder, BLIND_STEPS + 2, BLIND_STEPS + 3)
    assert not watched.look(0.25).is_blind


def test_a_step_that_takes_long_is_not_blindness(watched: Watched) -> None:
    record(watched.recorder, 0, 1)
    watched.recorder.enter_phase(1, Phase.forward)
    watched.look()
    assert not watched.look(3600).is_blind


def test_errors_of_the_recorder_are_seen(watched: Watched) -> None:
    watched.recorder.record_step(None, [], None)  # type: ignore[arg-type]
    record(watched.recorder, 0, 1)
    watched.recorder.enter_phase("x", Phase.idle)  # type: ignore[arg-type]
    assert watched.look().num_errors >= 1


def test_a_ring_that_is_gone_is_forgotten(watched: Watched) -> None:
    watched.look()
    watched.sights.observe([])
    assert watched.sights.read() == {}
    assert watched.sights.has_looked
