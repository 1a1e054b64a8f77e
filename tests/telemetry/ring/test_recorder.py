"""What the engine's side of the ring writes, a reader finds."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telemetry.records import (
    EVENT_CLASSES,
    NULLS,
    EngineRow,
    Event,
    RequestAdmitted,
    RequestArrived,
    StepRequests,
    StepRow,
    columns_of,
)
from telemetry.ring import Position, RingReader
from telemetry.ring import layout as lay
from telemetry.ring.batch import split_blob
from telemetry.vocabulary import EventKind, Phase
from tests.telemetry.ring.builders import blank, dense, filled, read_all, small_ring, step


@pytest.mark.parametrize("build", [filled, blank])
def test_every_column_of_a_step_comes_back(tmp_path: Path, build: Any) -> None:
    ring = small_ring(tmp_path)
    row = build(StepRow, step=5, ts=77)
    ring.record_step(row, [], None)
    [batch] = read_all(RingReader(ring.path))
    for column in columns_of(StepRow):
        value = getattr(row, column.name)
        expected = NULLS[column.dtype] if value is None else value
        assert batch.steps[column.name].tolist() == [expected], column.name
    ring.close()


@pytest.mark.parametrize("cls", EVENT_CLASSES)
@pytest.mark.parametrize("build", [filled, blank])
def test_every_column_of_an_event_comes_back(tmp_path: Path, cls: type[Event], build: Any) -> None:
    ring = small_ring(tmp_path)
    event = build(cls, step=5, ts=77, kind=EventKind.arrived)
    ring.record_events([filled(RequestAdmitted), event])
    [batch] = read_all(RingReader(ring.path))
    text = json.loads(batch.texts[1] or b"{}")
    for column in (column for column in columns_of(cls) if column.dtype != "hashes"):
        value = getattr(event, column.name)
        if column.name in (batch.events.dtype.names or ()):
            expected = NULLS[column.dtype] if value is None else value
            assert batch.events[column.name][1] == expected, column.name
        else:
            assert text.get(column.name) == value, column.name
    ring.close()


@pytest.mark.parametrize("request_id", ["r", None])
def test_block_hashes_come_back_as_they_are(tmp_path: Path, request_id: str | None) -> None:
    ring = small_ring(tmp_path)
    hashes = bytes(range(32)) + b"\0" * 8
    event = RequestArrived(step=1, ts=2, request_id=request_id, prefix_hashes=hashes)
    ring.record_events([event])
    [batch] = read_all(RingReader(ring.path))
    json_text, found = split_blob(batch.texts[0])
    assert json.loads(json_text).get("request_id") == request_id
    assert found == hashes
    ring.close()


@pytest.mark.parametrize("prefix", [None, bytes(16)])
@pytest.mark.parametrize("contents", [None, b"", bytes(range(16))])
def test_hashes_of_contents_lie_behind_the_rest(
    tmp_path: Path, prefix: bytes | None, contents: bytes | None
) -> None:
    ring = small_ring(tmp_path)
    told = {"step": 1, "ts": 2, "prefix_hashes": prefix, "content_hashes": contents}
    ring.record_events([RequestArrived(**told), RequestArrived(step=1, ts=2, request_id="next")])
    [batch] = read_all(RingReader(ring.path))
    assert batch.contents == [contents, None]
    assert split_blob(batch.texts[0])[1] == (prefix or b"")
    assert json.loads(split_blob(batch.texts[1])[0])["request_id"] == "next"
    ring.close()


def test_a_ring_whose_layout_has_no_place_for_contents_is_read(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.record_events([RequestArrived(step=1, ts=2, request_id="r", content_hashes=bytes(8))])
    ring.close()
    older = tmp_path / "older.ring"
    older.write_bytes(without_column(ring.path.read_bytes(), "events", "content_bytes"))
    [batch] = read_all(RingReader(older))
    assert batch.contents == [None]
    assert json.loads(split_blob(batch.texts[0])[0])["request_id"] == "r"


def compact(layout: dict[str, Any]) -> bytes:
    return json.dumps(layout, separators=(",", ":")).encode()


def without_column(ring: bytes, region: str, name: str) -> bytes:
    """Returns a ring whose layout does not name a column."""
    words = np.frombuffer(ring, np.uint64, count=lay.STATE_BYTES // 8)
    begin = lay.LAYOUT_OFFSET
    end = begin + int(words[lay.WORD["layout_bytes"]])
    layout = json.loads(ring[begin:end])
    columns = layout["regions"][region]["columns"]
    columns.remove(next(column for column in columns if column[0] == name))
    return ring[:begin] + compact(layout).ljust(end - begin) + ring[end:]


def test_what_an_event_does_not_have_is_null(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.record_events([Event(kind=EventKind.paused, step=1, ts=2)])
    [batch] = read_all(RingReader(ring.path))
    names = set(batch.events.dtype.names or ()) - {"kind", "step", "ts"}
    names -= {"blob_offset", "blob_bytes"}
    assert "content_bytes" in names
    for name in names:
        dtype = batch.events.dtype[name].str[1:]
        assert batch.events[name].tolist() == [NULLS[dtype]], name
    assert batch.texts == [b""]
    ring.close()


def test_dense_rows_come_back_with_step_and_slot(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.record_step(step(4, ts=9), [], dense(100, 3))
    ring.record_step(step(5, ts=10), [], dense(200, 2))
    [batch] = read_all(RingReader(ring.path))
    rows = batch.step_requests
    assert rows["request"].tolist() == [100, 101, 102, 200, 201]
    assert rows["step"].tolist() == [4, 4, 4, 5, 5]
    assert rows["ts"].tolist() == [9, 9, 9, 10, 10]
    assert rows["slot"].tolist() == [0, 1, 2, 0, 1]
    assert rows["num_blocks"].tolist() == [200, 202, 204, 400, 402]
    assert rows["zero_reason"].tolist() == [255] * 5
    assert set(rows["num_drafts"].tolist()) == {NULLS["u2"]}
    ring.close()


def test_a_value_that_does_not_fit_becomes_null_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = small_ring(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ring.record_step(StepRow(step=1, ts=2, num_running=-1, num_waiting=4), [], None)
    reader = RingReader(ring.path)
    [batch] = read_all(reader)
    assert batch.steps["num_running"].tolist() == [NULLS["u4"]] * 3
    assert batch.steps["num_waiting"].tolist() == [4] * 3
    assert reader.state().recorder_errors == 3
    assert len(caplog.records) == 1
    ring.close()


def test_an_error_stays_in_the_recorder_and_the_next_step_is_recorded(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.record_step(step(1), ["no event"], None)  # type: ignore[list-item]
    ring.record_step(step(2), [], StepRequests(request=np.zeros(2, np.uint32), num_blocks="no"))  # type: ignore[arg-type]
    ring.record_step(step(3), [], None)
    reader = RingReader(ring.path)
    [batch] = read_all(reader)
    assert batch.steps["step"].tolist()[-1] == 3
    assert reader.state().recorder_errors == 2
    ring.close()


def test_dense_rows_that_can_never_fit_leave_the_step_in_place(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    capacity = ring.layout.regions["step_requests"].capacity
    ring.record_step(step(1), [], dense(0, capacity + 1))
    reader = RingReader(ring.path)
    [batch] = read_all(reader)
    assert batch.steps["step"].tolist() == [1]
    assert len(batch.step_requests["slot"]) == 0
    assert reader.state().recorder_errors == 1
    ring.close()


def test_text_that_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.record_events([Event(kind=EventKind.engine_failed, step=1, ts=2, text="x" * 1_000_000)])
    reader = RingReader(ring.path)
    [batch] = read_all(reader)
    text = json.loads(batch.texts[0] or b"{}")["text"]
    assert text.startswith("xxx")
    assert text.endswith("[cut from 1000000 characters]")
    assert reader.state().recorder_errors == 1
    ring.close()


def test_the_last_description_counts(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    reader = RingReader(ring.path)
    assert reader.description() == (0, {})
    ring.describe_engine(EngineRow(model="one"))
    ring.describe_engine(EngineRow(model="two", watermark=0.5, has_null_block=True))
    version, found = reader.description()
    assert version == 2
    assert (found["model"], found["watermark"], found["has_null_block"]) == ("two", 0.5, True)
    ring.close()


def test_settings_that_are_too_long_say_so(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.describe_engine(EngineRow(model="m" * 50_000, settings="s" * 50_000, max_num_seqs=4))
    reader = RingReader(ring.path)
    _, found = reader.description()
    assert found["max_num_seqs"] == 4
    assert "left_out" in found["settings"]
    assert reader.state().recorder_errors == 1
    ring.close()


def test_the_header_says_what_the_engine_does(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    reader = RingReader(ring.path)
    assert reader.state().current_step is None
    ring.record_step(step(1), [Event(kind=EventKind.paused, step=1, ts=2)], None)
    ring.enter_phase(7, Phase.forward)
    ring.count_preemptions(98)
    state = reader.state()
    assert (state.current_step, state.phase) == (7, Phase.forward)
    assert (state.num_steps, state.num_events, state.num_preemptions) == (1, 1, 98)
    assert not state.closed
    ring.close()
    assert reader.state().closed


def test_the_preemption_counter_does_not_depend_on_what_is_recorded(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.count_preemptions(5)
    assert RingReader(ring.path).state().num_preemptions == 5
    ring.close()


def test_the_lock_is_held_exactly_while_the_engine_lives(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    reader = RingReader(ring.path)
    assert reader.is_held
    ring.close()
    assert not reader.is_held


def test_nothing_is_written_after_closing(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.close()
    ring.close()
    ring.record_step(step(1), [], None)
    ring.enter_phase(1, Phase.forward)
    ring.count_preemptions(1)
    assert RingReader(ring.path).read(Position()) is None


def test_a_forked_child_neither_holds_nor_writes_the_ring(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    go_on, said = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        ring.record_step(step(99), [], None)
        os.write(said[1], b"x")
        os.read(go_on[0], 1)
        os._exit(0)
    os.read(said[0], 1)
    ring.record_step(step(1), [], None)
    ring.close()
    reader = RingReader(ring.path)
    is_held_by_child = reader.is_held
    [batch] = read_all(reader)
    os.write(go_on[1], b"x")
    os.waitpid(child, 0)
    for fd in (*go_on, *said):
        os.close(fd)
    assert batch.steps["step"].tolist() == [1]
    assert not is_held_by_child


def test_the_heart_beats_by_itself(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    reader = RingReader(ring.path)
    first = reader.state().heartbeat_ns
    for _ in range(1_000):
        if reader.state().heartbeat_ns > first:
            break
        ring._stop.wait(0.01)
    assert reader.state().heartbeat_ns > first
    ring.close()


def test_an_error_of_whoever_records_is_counted(tmp_path: Path) -> None:
    ring = small_ring(tmp_path)
    ring.count_error("a hook failed")
    assert RingReader(ring.path).state().recorder_errors == 1
    ring.close()
    ring.count_error("too late")
