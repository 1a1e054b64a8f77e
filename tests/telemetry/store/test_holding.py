"""Rows that are held answer every statement as the view does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.bundle.making import make_bundle
from telemetry.errors import QueryRefused
from telemetry.query.window import choose_window
from telemetry.records import RequestPreempted, RunClock
from telemetry.sql.packed_log import opened
from telemetry.store import Log, holding, open_log
from telemetry.store.guard import Limits
from telemetry.store.holding import hold_preemptions
from tests.telemetry.collector.builders import (
    collector_process,
    ring_for,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.ring.builders import dense, step

PACKED = Path(__file__).parents[2] / "data" / "step_logs"
ALL = "SELECT * FROM preemptions ORDER BY ALL"
SHARED = """
SELECT cause, count(*) AS n, sum(num_tokens_recomputed) AS again, max(ts_utc) AS last
FROM preemptions WHERE out_ns > 0 GROUP BY cause ORDER BY cause
"""
TABLES = "SELECT database_name FROM duckdb_tables() WHERE table_name = 'preemptions'"


@pytest.fixture(params=["v1", "v3", "v5", "bundle"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """Logs of several versions, and a bundle."""
    version = "v4" if request.param == "bundle" else request.param
    with opened(PACKED / f"{version}.tar.xz") as packed:
        if request.param != "bundle":
            yield packed
            return
        make_bundle(packed, choose_window(packed, None, None), tmp_path / "bundle")
    with open_log(tmp_path / "bundle") as bundle:
        yield bundle


def is_held(log: Log) -> bool:
    found: list[str] = log.query(TABLES).column("database_name").to_pylist()
    return found == ["temp"]


def test_rows_and_types_are_those_of_the_view(log: Log) -> None:
    before = [log.query(ALL), log.query(SHARED)]
    assert before[0].num_rows > 0
    assert not is_held(log)
    log.hold_views()
    assert is_held(log)
    assert [log.query(ALL), log.query(SHARED)] == before


def test_the_files_stay_as_they_are_and_nothing_more_may_be_written(log: Log) -> None:
    files = [log.target] if log.target.is_file() else sorted(log.target.iterdir())
    before = {path: path.read_bytes() for path in files}
    log.hold_views()
    log.hold_views()
    with pytest.raises(QueryRefused):
        log.query("DELETE FROM preemptions")
    assert {path: path.read_bytes() for path in files} == before
    assert files == ([log.target] if log.target.is_file() else sorted(log.target.iterdir()))


def test_more_rows_than_may_be_held_are_left_to_the_view(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log.query(ALL)
    monkeypatch.setattr(holding, "MAX_HELD_ROWS", before.num_rows - 1)
    log.hold_views()
    assert not is_held(log)
    assert log.query(ALL) == before


def test_without_room_the_view_answers() -> None:
    connection: Any = duckdb.connect()
    connection.execute("CREATE MACRO event_kind(name) AS 1")
    connection.execute("CREATE VIEW request_events AS SELECT 1 AS kind")
    connection.execute("CREATE VIEW preemptions AS SELECT range AS seq FROM range(50_000_000)")
    connection.execute("SET max_temp_directory_size = '0 MiB'")
    connection.execute("SET memory_limit = '16 MiB'")
    assert not hold_preemptions(connection, Limits())
    assert connection.execute("SELECT max(seq) FROM preemptions").fetchone() == (49_999_999,)
    connection.close()


def test_a_live_log_is_asked_each_time_and_held_once_it_is_closed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    clock = RunClock.start()
    ring = ring_for(log, clock=clock)

    def preempt(request: int) -> None:
        now = clock.now()
        evicted = RequestPreempted(step=request, ts=now, request=request)
        ring.record_step(step(request, now), [evicted], dense(request))

    def seen() -> list[int]:
        found: list[int] = reader.query("SELECT request FROM preemptions ORDER BY 1")[0].to_pylist()
        return found

    with collector_process(log) as process:
        wait_for_collector(log)
        with open_log(log) as reader:
            preempt(1)
            wait_until(lambda: seen() == [1])
            reader.hold_views()
            assert not is_held(reader)
            preempt(2)
            wait_until(lambda: seen() == [1, 2])
            process.terminate()
            assert process.wait(timeout=30) == 0
            assert seen() == [1, 2]
            reader.hold_views()
            assert is_held(reader)
            assert seen() == [1, 2]
    ring.close()
