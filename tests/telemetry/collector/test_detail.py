"""What each detail keeps of a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.collector.detail import chosen_detail, read_detail
from telemetry.errors import StepscopeError
from telemetry.records import Event, EventKind, RequestArrived, RequestPreempted
from telemetry.step import explain_step
from telemetry.step_facts import read_step
from telemetry.store import open_log
from tests.telemetry.collector.builders import collect, record, ring_for, rows
from tests.telemetry.ring.builders import dense, step


def dense_steps(log: Path) -> list[int]:
    return [number for (number,) in rows(log, "SELECT DISTINCT step FROM step_requests ORDER BY 1")]


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("steps", []),
        ("transitions", []),
        ("full", list(range(25))),
        ("sampled=10", [0, 10, 20]),
        ("sampled=1", list(range(25))),
    ],
)
def test_the_dense_rows_of_these_steps_are_kept(
    tmp_path: Path, detail: str, expected: list[int]
) -> None:
    ring = ring_for(tmp_path / "log")
    record(ring, 0, 25)
    collect(tmp_path / "log", detail=detail)
    ring.close()
    assert dense_steps(tmp_path / "log") == expected
    assert rows(tmp_path / "log", "SELECT count(*) FROM steps") == [(25,)]


def test_sampling_goes_on_after_a_restart_without_gap_or_repeat(tmp_path: Path) -> None:
    ring = ring_for(tmp_path / "log")
    for first in range(0, 30, 5):
        record(ring, first, first + 5)
        collect(tmp_path / "log", detail="sampled=7")
    ring.close()
    counted = rows(
        tmp_path / "log", "SELECT step, count(*) FROM step_requests GROUP BY 1 ORDER BY 1"
    )
    assert counted == [(0, 2), (7, 2), (14, 2), (21, 2), (28, 2)]


def kinds_kept(tmp_path: Path, detail: str) -> list[EventKind]:
    ring = ring_for(tmp_path / "log")
    now = ring._clock.now()
    common = {"step": 0, "ts": now, "request": 1}
    told = [
        RequestArrived(**common, request_id="a"),
        Event(kind=EventKind.skipped, reason=1, **common),
        RequestPreempted(**common),
        Event(kind=EventKind.load_started, **common),
        Event(kind=EventKind.load_failed, **common),
        Event(kind=EventKind.throttled, step=0, ts=now),
        Event(kind=EventKind.finished, reason=1, **common),
    ]
    ring.record_step(step(0, now), told, dense(0, 1))
    collect(tmp_path / "log", detail=detail)
    ring.close()
    found = rows(tmp_path / "log", "SELECT kind, seq FROM request_events ORDER BY seq")
    assert all(told[seq].kind == kind for kind, seq in found)
    return [EventKind(kind) for kind, _ in found]


def test_steps_keeps_the_life_of_requests_and_failures(tmp_path: Path) -> None:
    assert kinds_kept(tmp_path, "steps") == [
        EventKind.arrived,
        EventKind.preempted,
        EventKind.load_failed,
        EventKind.throttled,
        EventKind.finished,
    ]
    assert rows(tmp_path / "log", "SELECT request_id FROM request_arrivals") == [("a",)]


def test_transitions_keeps_every_event(tmp_path: Path) -> None:
    assert len(kinds_kept(tmp_path, "transitions")) == 7


def test_a_step_without_dense_rows_names_what_is_kept_and_what_would_keep_them(
    tmp_path: Path,
) -> None:
    ring = ring_for(tmp_path / "log")
    record(ring, 0, 3)
    collect(tmp_path / "log", detail="sampled=2")
    ring.close()
    with open_log(tmp_path / "log") as log:
        missing, there = read_step(log, 1), read_step(log, 2)
    assert missing is not None
    assert there is not None
    text = " ".join(explain_step(missing).split())
    assert "kept with --detail sampled=2; --detail full" in text
    assert "--detail" not in explain_step(there)


@pytest.mark.parametrize("wrong", ["sampled", "sampled=0", "sampled=-1", "all", "sampled=1e3", ""])
def test_an_unknown_detail_is_refused_with_those_that_there_are(wrong: str) -> None:
    with pytest.raises(StepscopeError, match=r"steps, transitions, full, and sampled=N"):
        read_detail(wrong)


def test_the_flag_comes_before_the_environment() -> None:
    environment = {"STEPSCOPE_DETAIL": "full"}
    assert chosen_detail("steps", environment) == "steps"
    assert chosen_detail(None, environment) == "full"
    assert chosen_detail(None, {}) == "transitions"
