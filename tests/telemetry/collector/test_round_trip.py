"""Events in, rows out: every column of every table, with its NULLs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telemetry.records import (
    EVENT_CLASSES,
    SCHEMA_VERSION,
    EngineRow,
    Event,
    RequestAdmitted,
    RequestArrived,
    StepRequestRow,
    StepRequests,
    StepRow,
    columns_of,
)
from telemetry.store import open_log
from telemetry.tables import DENSE_TABLES, TABLES
from telemetry.vocabulary import EventKind, Phase
from tests.telemetry.collector.builders import collect, record, ring_for, rows
from tests.telemetry.ring.builders import blank, filled, step

KINDS = {
    "request_arrivals": EventKind.arrived,
    "session_inputs": EventKind.input_added,
    "request_finishes": EventKind.finished,
    "encoder_items": EventKind.item_scheduled,
    "request_events": EventKind.preempted,
}


def one_row(log: Path, table: str) -> dict[str, Any]:
    with open_log(log) as opened:
        [row] = opened.query(f"FROM {table}").to_pylist()
    return dict(row)


@pytest.mark.parametrize("build", [filled, blank])
def test_steps(tmp_path: Path, build: Any) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    row = build(StepRow, ts=ring._clock.now(), step=3)
    ring.record_step(row, [], None)
    collect(log)
    expected = {c.name: getattr(row, c.name) for c in columns_of(StepRow)}
    assert one_row(log, "steps") == {"engine": ring.engine, **expected}
    ring.close()


@pytest.mark.parametrize("cls", EVENT_CLASSES)
@pytest.mark.parametrize("build", [filled, blank])
def test_events(tmp_path: Path, cls: type[Event], build: Any) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    table = cls.TABLE or "request_events"
    event = build(cls, step=3, ts=ring._clock.now(), kind=KINDS[table])
    ring.record_events([event])
    collect(log)
    got = one_row(log, table)
    assert set(got) == {c.name for c in TABLES[table]}
    own = {c.name: getattr(event, c.name) for c in columns_of(cls)}
    expected = {name: own.get(name) for name in got} | {"engine": ring.engine, "seq": 0}
    assert got == expected
    ring.close()


@pytest.mark.parametrize("is_filled", [True, False])
def test_step_requests(tmp_path: Path, is_filled: bool) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    names = [c.name for c in columns_of(StepRequestRow) if c.nullable]
    values = {name: np.array([i, i + 20]) for i, name in enumerate(names)}
    given = values if is_filled else {}
    now = ring._clock.now()
    ring.record_step(step(3, now), [], StepRequests(request=np.array([7, 8], np.uint32), **given))
    collect(log, detail="full")
    with open_log(log) as opened:
        got = opened.query("FROM step_requests ORDER BY slot").to_pylist()
    assert got == [
        {
            "engine": ring.engine,
            "ts": now,
            "slot": slot,
            "step": 3,
            "request": 7 + slot,
            **{name: int(values[name][slot]) if is_filled else None for name in names},
        }
        for slot in (0, 1)
    ]
    assert set(got[0]) == {c.name for c in DENSE_TABLES["step_requests"]}
    ring.close()


def test_engines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    description = filled(EngineRow, settings=json.dumps({"a": "é"}))
    ring.describe_engine(description)
    collect(log)
    expected = {c.name: getattr(description, c.name) for c in columns_of(EngineRow)}
    expected["detail"] = "transitions"  # the collector's own word
    assert one_row(log, "engines") == {"engine": ring.engine, **expected}
    ring.close()


def test_an_engine_that_says_nothing_is_known_by_its_ring(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    collect(log)
    row = one_row(log, "engines")
    assert row["started_ts"] == ring._clock.wall_anchor_ns
    assert row["pid"] > 0
    assert row["max_num_seqs"] is None
    ring.close()


def test_a_new_description_replaces_the_old_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    ring.describe_engine(EngineRow(max_num_seqs=4))
    collect(log)
    ring.describe_engine(EngineRow(max_num_seqs=8))
    collect(log)
    assert one_row(log, "engines")["max_num_seqs"] == 8
    ring.close()


def test_heartbeats_clock_anchors_and_drains(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 5)
    ring.enter_phase(5, Phase.forward)
    collect(log)
    beat = one_row(log, "heartbeats")
    assert (beat["step"], beat["phase"], beat["num_steps"]) == (5, Phase.forward, 5)
    assert (beat["num_events"], beat["num_preemptions"], beat["num_recorder_errors"]) == (20, 5, 0)
    assert beat["rss_bytes"] > 1_000_000
    first, second = rows(log, "SELECT ts, monotonic_ns, wall_ns FROM clock_anchors ORDER BY ts")
    assert first[1:] == (ring._clock.monotonic_anchor_ns, ring._clock.wall_anchor_ns)
    assert second[0] - first[0] == second[1] - first[1]
    drain = one_row(log, "drains")
    assert (drain["num_commits"], drain["num_steps"], drain["num_events"]) == (5, 5, 20)
    assert (drain["num_step_requests"], drain["closed"]) == (10, False)
    ring.close()


def test_hostile_text_arrives_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    ids = ["a\0b", "\x1b[31m", "‮evil", "';DROP TABLE steps;--", "\ud800", "é" * 2000, ""]
    for number, request_id in enumerate(ids):
        now = ring._clock.now()
        ring.record_events([RequestArrived(step=1, ts=now, request=number, request_id=request_id)])
    collect(log)
    got = [row[0] for row in rows(log, "SELECT request_id FROM request_arrivals ORDER BY seq")]
    assert got == [*ids[:4], "?", *ids[5:]]
    ring.close()


def test_events_keep_their_order_within_a_step(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    now = ring._clock.now()
    order = [5, 3, 9, 1]
    ring.record_step(
        step(1, now), [RequestAdmitted(step=1, ts=now, request=r) for r in order], None
    )
    collect(log)
    assert rows(log, "SELECT request, seq FROM request_events ORDER BY seq") == [
        (request, seq) for seq, request in enumerate(order)
    ]
    ring.close()


def test_every_file_carries_version_and_vocabulary(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log, detail="full")
    assert rows(log, "FROM schema_info") == [(SCHEMA_VERSION,)]
    assert rows(log, "SELECT name FROM vocabulary WHERE enum = 'event_kind' AND code = 6") == [
        ("preempted",)
    ]
    assert {path.stat().st_mode & 0o777 for path in log.glob("*.duckdb")} == {0o600}
    assert len(list(log.glob("*.duckdb"))) == 2
