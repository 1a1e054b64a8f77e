"""A reader gets every row once, in order, or says which it lost; never half a row."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.errors import RingError
from telemetry.records import Event
from telemetry.ring import Position, RingReader
from telemetry.ring.batch import Loss, RingBatch
from telemetry.ring.reader import NS_PER_DAY
from telemetry.vocabulary import EventKind
from tests.telemetry.ring.builders import dense, events, read_all, small_ring, step


def numbers(batches: list[RingBatch]) -> list[int]:
    return [number for batch in batches for number in batch.steps["step"].tolist()]


def losses(batches: list[RingBatch], region: str) -> list[Loss]:
    return [loss for batch in batches for loss in batch.losses if loss.region == region]


def test_rows_go_round_the_ring_without_a_loss(tmp_path: Path) -> None:
    ring = small_ring(tmp_path, 128 * 1024)
    reader = RingReader(ring.path)
    position, got, requests, texts = Position(), [], [], []
    laps = 3 * ring.layout.regions["steps"].capacity
    for number in range(laps):
        ring.record_step(step(number), events(number), dense(number, 5))
        if number % 7 == 0 or number == laps - 1:
            for batch in read_all(reader, position):
                got += batch.steps["step"].tolist()
                requests += batch.step_requests["request"].tolist()
                texts += batch.texts
                assert batch.losses == ()
                position = batch.position
    assert got == list(range(laps))
    assert requests == [n + i for n in range(laps) for i in range(5)]
    assert [t for t in texts if b"text" in (t or b"")] == [
        b'{"text":"text %d"}' % n for n in range(laps)
    ]
    ring.close()


def test_a_lapped_reader_knows_exactly_what_it_lost(tmp_path: Path) -> None:
    ring = small_ring(tmp_path, 128 * 1024)
    capacity = ring.layout.regions["steps"].capacity
    total = capacity * 2 + 17
    for number in range(total):
        ring.record_step(step(number), [], None)
    batches = read_all(RingReader(ring.path))
    assert losses(batches, "steps") == [Loss("steps", 0, total - capacity - 1)]
    assert numbers(batches) == list(range(total - capacity, total))
    ring.close()


def test_dense_rows_never_push_out_steps(tmp_path: Path) -> None:
    ring = small_ring(tmp_path, 128 * 1024)
    capacity = ring.layout.regions["step_requests"].capacity
    for number in range(10):
        ring.record_step(step(number), [], dense(0, capacity // 3))
    batches = read_all(RingReader(ring.path))
    assert numbers(batches) == list(range(10))
    kept = capacity // 3 * 10 - capacity
    assert losses(batches, "step_requests") == [Loss("step_requests", 0, kept - 1)]
    assert sum(len(b.step_requests["slot"]) for b in batches) == capacity
    ring.close()


def test_text_that_was_overwritten_is_lost_and_its_event_is_not(tmp_path: Path) -> None:
    ring = small_ring(tmp_path, 128 * 1024)
    capacity = ring.layout.regions["blob"].capacity
    text = "x" * (capacity // 10)
    for number in range(20):
        row = events(number)[2]
        row.text = text
        ring.record_events([row])
    batches = read_all(RingReader(ring.path))
    texts = [t for batch in batches for t in batch.texts]
    num_lost = texts.count(None)
    assert len(texts) == 20
    assert texts[:num_lost] == [None] * num_lost
    assert 0 < num_lost < 20
    [loss] = losses(batches, "blob")
    assert (loss.first, loss.last + 1) == (0, num_lost * len(texts[-1] or b""))
    ring.close()


@pytest.mark.parametrize("num_during", [1, 3, 50, 1000])
def test_rows_overwritten_during_the_copy_are_thrown_away(tmp_path: Path, num_during: int) -> None:
    ring = small_ring(tmp_path, 128 * 1024)
    reader = RingReader(ring.path)
    capacity = ring.layout.regions["steps"].capacity
    for number in range(capacity):
        ring.record_step(step(number), events(number), dense(number))
    copy, written = reader._copy, capacity

    def slow_copy(wanted: Any) -> Any:
        nonlocal written
        for number in range(written, written + num_during):
            ring.record_step(step(number), events(number), dense(number))
        written += num_during
        reader._copy = copy  # type: ignore[method-assign]
        return copy(wanted)

    reader._copy = slow_copy  # type: ignore[method-assign]
    batches = read_all(reader)
    got = numbers(batches)
    lost = losses(batches, "steps")
    assert [n for one in lost for n in range(one.first, one.last + 1)] + got == list(range(written))
    for batch in batches:
        assert batch.steps["num_running"].tolist() == [n % 1000 for n in batch.steps["step"]]
    ring.close()


@pytest.mark.parametrize("num_during", [1, 10, 10_000])
def test_commits_overwritten_while_they_are_read_are_not_trusted(
    tmp_path: Path, num_during: int
) -> None:
    ring = small_ring(tmp_path, 128 * 1024)
    reader = RingReader(ring.path)
    capacity = ring.layout.regions["commits"].capacity
    total = capacity + 5
    for number in range(total):
        ring.record_events([Event(kind=EventKind.paused, step=number, ts=1)])
    original = reader._ring_slice

    def slow_slice(rows: Any, begin: int, end: int) -> Any:
        nonlocal total
        reader._ring_slice = original  # type: ignore[method-assign]
        for number in range(total, total + num_during):
            ring.record_events([Event(kind=EventKind.paused, step=number, ts=1)])
        total += num_during
        return original(rows, begin, end)

    reader._ring_slice = slow_slice  # type: ignore[method-assign]
    batches = read_all(reader)
    got = [n for batch in batches for n in batch.events["step"].tolist()]
    lost = [n for one in losses(batches, "events") for n in range(one.first, one.last + 1)]
    assert lost + got == list(range(total))
    assert len(lost) <= total - capacity + 1
    ring.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 40), st.booleans()), min_size=1, max_size=30
    )
)
def test_every_row_is_read_once_or_told_as_lost(plan: list[tuple[int, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ring = small_ring(Path(directory), 80 * 1024)
        reader = RingReader(ring.path)
        position = Position()
        seen: dict[str, list[int]] = {"steps": [], "events": [], "step_requests": []}
        number = 0
        for num_steps, num_dense, reads in [*plan, (0, 0, True)]:
            for _ in range(num_steps):
                ring.record_step(step(number), events(number), dense(number, num_dense))
                number += 1
            if reads:
                for batch in read_all(reader, position):
                    _account(seen, batch)
                    position = batch.position
        assert seen["steps"] == list(range(number))
        assert seen["events"] == list(range(4 * number))
        assert seen["step_requests"] == list(range(position.step_requests))
        reader.close()
        ring.close()


def _account(seen: dict[str, list[int]], batch: RingBatch) -> None:
    for loss in batch.losses:
        if loss.region in seen:
            seen[loss.region] += range(loss.first, loss.last + 1)
    seen["steps"] += batch.steps["step"].tolist()
    num_events, num_dense = len(batch.events), len(batch.step_requests["slot"])
    seen["events"] += range(batch.first_event, batch.first_event + num_events)
    first = batch.first_step_request
    seen["step_requests"] += range(first, first + num_dense)


def test_a_batch_ends_at_midnight(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    for number in range(6):
        ring.record_step(step(number, ts=10 * NS_PER_DAY + (number - 3)), [], None)
    before, after = read_all(RingReader(ring.path))
    assert before.steps["step"].tolist() == [0, 1, 2]
    assert after.steps["step"].tolist() == [3, 4, 5]
    ring.close()


@pytest.mark.parametrize("content", [b"", b"short", bytes(200_000)])
def test_what_is_no_ring_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "0000000000000001.ring"
    path.write_bytes(content)
    with pytest.raises(RingError, match="is no ring"):
        RingReader(path)


_WRITER = """
import sys
from pathlib import Path
from telemetry.vocabulary import EventKind
from tests.telemetry.ring.builders import *
ring = small_ring(Path(sys.argv[1]), 1 << 20)
print(ring.path, flush=True)
number = 0
while True:
    ring.record_step(step(number), events(number), dense(number))
    number += 1
"""


def test_kill_of_the_writer_leaves_no_torn_row(tmp_path: Path) -> None:
    chance = random.Random(5)
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        path = Path(writer.stdout.readline().strip())
        reader = RingReader(path)
        until = time.monotonic() + chance.uniform(0.05, 0.3)
        while reader.word("published") < 100 or time.monotonic() < until:
            pass
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        assert not reader.is_held
        _check_whole(read_all(reader), reader.word("published"))
        reader.close()


def _check_whole(batches: list[RingBatch], num_published: int) -> None:
    got = numbers(batches)
    assert got == list(range(num_published - len(got), num_published))
    for batch in batches:
        for row in batch.steps:
            number = int(row["step"])
            assert row["num_running"] == number % 1000
            assert row["num_preemptions_total"] == number
        for event, text in zip(batch.events, batch.texts, strict=True):
            if text:
                assert str(int(event["step"])).encode() in text or b"drafts" in text
        rows = batch.step_requests
        assert (rows["request"] == rows["step"] + rows["slot"]).all()


def test_a_reader_that_ends_leaves_the_ring_of_a_living_engine(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    code = (
        "import sys; from pathlib import Path; from telemetry.ring import *; "
        "RingReader(Path(sys.argv[1])).read(Position())"
    )
    subprocess.run([sys.executable, "-c", code, str(ring.path)], check=True)
    ring.record_step(step(1), [], None)
    assert numbers(read_all(RingReader(ring.path))) == [1]
    ring.close()
