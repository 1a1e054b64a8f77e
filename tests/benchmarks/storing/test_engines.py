"""Simulated engines write what an engine could have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.storing.engines import BLOCK_SIZE, SimulatedEngine, run
from telemetry.ring import Position, RingReader
from telemetry.vocabulary import EventKind

NUM_REQUESTS = 16
NUM_STEPS = 700
"""Long enough for every request of the beginning to end."""


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rings = tmp_path_factory.mktemp("rings")
    engine = SimulatedEngine(rings, rings / "log", num_requests=NUM_REQUESTS, ring_bytes=4 << 20)
    for _ in range(NUM_STEPS):
        engine.step()
    reader = RingReader(engine.ring.path)
    found = reader.read(Position())
    reader.close()
    engine.close()
    return found


def test_every_step_has_as_many_requests(batch: Any) -> None:
    assert batch.losses == ()
    assert len(batch.steps) == NUM_STEPS
    assert len(batch.step_requests["request"]) == NUM_STEPS * NUM_REQUESTS


def test_requests_end_and_others_arrive(batch: Any) -> None:
    kinds = batch.events["kind"].tolist()
    assert kinds.count(EventKind.finished) == kinds.count(EventKind.arrived) >= NUM_REQUESTS
    requests = batch.step_requests["request"]
    assert len(np.unique(requests)) == NUM_REQUESTS + kinds.count(EventKind.arrived)


def test_a_requests_tokens_add_up(batch: Any) -> None:
    rows = batch.step_requests
    for request in np.unique(rows["request"]):
        of_one = rows["request"] == request
        computed = rows["num_computed_tokens"][of_one].astype(int)
        given = rows["num_scheduled_tokens"][of_one].astype(int)
        assert (computed[1:] == computed[:-1] + given[:-1]).all()


def test_blocks_are_those_that_its_tokens_fill(batch: Any) -> None:
    rows = batch.step_requests
    tokens = rows["num_computed_tokens"].astype(int) + rows["num_scheduled_tokens"]
    assert (rows["num_blocks"] == -(-tokens // BLOCK_SIZE)).all()


def test_some_are_given_nothing_and_say_why(batch: Any) -> None:
    rows = batch.step_requests
    is_zero = rows["num_scheduled_tokens"] == 0
    assert is_zero.any()
    assert (is_zero == (rows["zero_reason"] != 255)).all()


def test_a_course_counts_its_steps(tmp_path: Path) -> None:
    (tmp_path / "rings").mkdir()
    course = run(
        tmp_path / "rings", tmp_path / "log", num_engines=2, seconds=0.2, rate=50, num_requests=4
    )
    assert 0 < course.num_steps <= 2 * 50 * course.seconds + 2
