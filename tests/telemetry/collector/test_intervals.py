"""How often a collector flushes: soon while somebody reads or a ring fills, else seldom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from telemetry.collector import Collector
from telemetry.store.rows import Batch
from telemetry.store.writer import LogWriter
from tests.telemetry.collector.builders import (
    collecting,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)


@contextmanager
def running(log: Path) -> Iterator[Collector]:
    """A collector whose loop runs in a thread."""
    with collecting(log) as collector:
        thread = threading.Thread(target=collector.run)
        thread.start()
        try:
            wait_for_collector(log)
            yield collector
        finally:
            collector.stop()
            thread.join(timeout=60)


def test_unread_logs_are_flushed_seldom_and_read_ones_soon(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    with running(log) as collector:
        wait_until(lambda: collector._rings)
        wait_until(lambda: not collector._is_due())
        record(ring, 0, 3)
        assert rows(log, "SELECT 1") == [(1,)]
        assert collector._is_due()
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(3,)])
    ring.close()


def test_a_ring_that_fills_fast_is_flushed_soon(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    with collecting(log) as collector:
        collector.drain()
        assert not collector._is_due()
        record(ring, 0, ring.layout.regions["steps"].capacity // 5, num_dense=0)
        collector.drain()
        assert collector._is_due()
        record(ring, 1000, 1001)
        collector.drain()
        assert not collector._is_due()
    ring.close()


def test_a_ring_whose_rows_the_log_refuses_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    bad, good = ring_for(log), ring_for(log)
    insert = LogWriter._insert

    def refusing(self: LogWriter, database: str, batch: Batch) -> None:
        if batch.table == "steps" and bad.engine in batch.arrays["engine"].tolist():
            raise duckdb.ConversionException("no such number")
        insert(self, database, batch)

    monkeypatch.setattr(LogWriter, "_insert", refusing)
    with collecting(log, detail="full") as collector:
        for first in (0, 4):
            for ring in (bad, good):
                record(ring, first, first + 4)
            collector.drain()
        left_alone = collector._status().left_alone
    assert [each.path for each in left_alone] == [str(bad.path)]
    counts = "SELECT engine, count(*), count(DISTINCT step) FROM steps GROUP BY 1"
    assert rows(log, counts) == [(good.engine, 8, 8)]
    for ring in (bad, good):
        ring.close()
