"""Rows of live sources reach the log; what cannot be written waits, what cannot be kept is told."""

from __future__ import annotations

import logging
from pathlib import Path

import duckdb
import pytest

from telemetry.collector import Collector
from telemetry.records import EngineRow
from telemetry.sources.live import LiveSources
from telemetry.sources.rows import Row, SourceRows
from telemetry.store import open_log
from telemetry.store.collector_status import SourceStatus
from telemetry.store.writer import LogWriter


class Told:
    """A source that gives what it was made with, at its start."""

    def __init__(self, *rows: Row) -> None:
        self._given = rows
        self.is_closed = False
        self.is_well = True

    def start(self, rows: SourceRows) -> None:
        rows.describe(1, EngineRow(model="m"))
        rows.add("samples", self._given)

    def close(self) -> None:
        self.is_closed = True

    def status(self) -> str:
        return f"{len(self._given)} rows"


def sample(ts: int) -> Row:
    return {"engine": 1, "ts": ts, "metric": "m", "value": 1.0}


def moments(log: Path) -> list[int]:
    with open_log(log) as opened:
        return [
            int(ts) for ts in opened.query("SELECT ts FROM samples ORDER BY ts")["ts"].to_pylist()
        ]


def test_rows_and_engine_reach_the_log(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, [], dense=False)
    sources = LiveSources([Told(sample(5), sample(6))])
    sources.start()
    sources.write(writer)
    sources.write(writer)
    writer.close()
    assert moments(tmp_path) == [5, 6]
    with open_log(tmp_path) as log:
        assert log.query("SELECT model FROM engines")["model"].to_pylist() == ["m"]


def test_rows_wait_where_the_log_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LogWriter(tmp_path, [], dense=False)
    sources = LiveSources([Told(sample(5))])
    sources.start()
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise duckdb.IOException("disk full")

        broken.setattr(LogWriter, "write", fail)
        with pytest.raises(duckdb.IOException):
            sources.write(writer)
    sources.write(writer)
    writer.close()
    assert moments(tmp_path) == [5]


def test_what_finds_no_room_is_counted() -> None:
    rows = SourceRows(most=2)
    assert rows.add("samples", [sample(1), sample(2), sample(3)]) == 2
    assert rows.num_dropped == 1


def test_dropped_rows_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("telemetry.sources.live.MOST_ROWS", 1)
    writer = LogWriter(tmp_path, [], dense=False)
    sources = LiveSources([Told(sample(5), sample(6))])
    sources.start()
    with caplog.at_level(logging.WARNING):
        sources.write(writer)
        sources.write(writer)
    writer.close()
    assert [r.getMessage() for r in caplog.records] == [
        "rows of sources that the log did not take in time, and were dropped: 1"
    ]


def test_closing_closes_each() -> None:
    told = Told()
    sources = LiveSources([told])
    sources.close()
    assert told.is_closed
    assert sources.statuses() == [SourceStatus(text="0 rows", is_well=True)]


class TellsAtItsEnd(Told):
    """A source that still gives something when it is closed."""

    def start(self, rows: SourceRows) -> None:
        self._rows = rows

    def close(self) -> None:
        self._rows.add("samples", self._given)


def test_what_a_source_tells_at_its_end_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = TellsAtItsEnd(sample(5))
    with Collector(log, directories=[], sources=[source]) as collector:
        collector.stop()
        collector.run()
        assert moments(log) == []
    assert moments(log) == [5]
