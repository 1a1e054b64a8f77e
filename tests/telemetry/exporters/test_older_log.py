"""A log whose days were written before there was a table of exports."""

from __future__ import annotations

from pathlib import Path

import duckdb

from telemetry.store.files import attach, day_files
from tests.telemetry.collector.builders import collect, collecting, record, ring_for, rows


def older_log(tmp_path: Path) -> Path:
    """Returns a log of one engine that has ended, without the table."""
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 5)
    ring.close()
    collect(log)
    with duckdb.connect() as connection:
        for file in day_files(log):
            attach(connection, file, read_only=False)
            connection.execute(f"DROP TABLE {file.database}.exports")
    return log


def test_it_can_be_read(tmp_path: Path) -> None:
    log = older_log(tmp_path)
    assert rows(log, "SELECT count(*) FROM exports") == [(0,)]
    assert rows(log, "SELECT count(*) FROM request_spans WHERE name = 'llm_request'") == [(5,)]


def test_a_collector_that_goes_on_with_it_adds_the_table(tmp_path: Path) -> None:
    log = older_log(tmp_path)
    with collecting(log) as collector, collector._lend() as connection:
        assert connection.execute("SELECT count(*) FROM exports").fetchall() == [(0,)]
    assert rows(log, "SELECT count(*) FROM request_finishes") == [(5,)]


def test_a_day_that_lacks_it_is_read_beside_one_that_has_it(tmp_path: Path) -> None:
    log = older_log(tmp_path)
    (file,) = day_files(log)
    file.path.rename(log / "2026-01-01.duckdb")
    ring = ring_for(log)
    record(ring, 0, 3)
    ring.close()
    collect(log)
    assert rows(log, "SELECT count(*) FROM request_finishes") == [(8,)]
    assert rows(log, "SELECT count(*) FROM exports") == [(0,)]
