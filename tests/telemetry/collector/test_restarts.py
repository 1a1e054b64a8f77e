"""A collector that dies, by a query or by a signal, is started again by whoever is attached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.collector import find_collector, stop_collector
from telemetry.errors import CollectorError
from telemetry.store import open_log
from telemetry.store.presence import NOTICE_NAME, CollectorNotice
from tests.telemetry.collector.builders import (
    RINGS,
    collect,
    collecting,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.collector.test_kills import check_exactly_once

_DEADLY = """
from telemetry.collector import endpoint
original = endpoint.run_query
def run_query(connection, sql, *rest):
    if 'deadly' in sql:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(connection, sql, *rest)
endpoint.run_query = run_query
"""


def test_a_query_that_kills_the_collector_costs_that_query_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    with collector_process(log, prologue=_DEADLY) as first:
        wait_for_collector(log)
        record(ring, 0, 10)
        with open_log(log) as reader:
            count = "SELECT count(*) AS n FROM steps"
            wait_until(lambda: reader.query(count).to_pylist() == [{"n": 10}])
            record(ring, 10, 20)
            with pytest.raises(CollectorError, match="too heavy for it"):
                reader.query("SELECT 'deadly'")
            assert first.wait(timeout=30) == -signal.SIGKILL
            record(ring, 20, 30)
            with collector_process(log):
                wait_for_collector(log)
                wait_until(lambda: reader.query(count).to_pylist() == [{"n": 30}])
    check_exactly_once(log, 30)
    ring.close()


_ATTACHED = """
import sys
from pathlib import Path
from telemetry.collector import keep_collector
keep_collector(Path(sys.argv[1]), linger_seconds=600)
sys.stdin.read()
"""


def test_who_is_attached_starts_another_when_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    log = tmp_path / "log"
    attached = subprocess.Popen(
        [sys.executable, "-c", _ATTACHED, str(log)], stdin=subprocess.PIPE, text=True
    )
    try:
        first = wait_until(lambda: find_collector(log))
        os.kill(first.pid, signal.SIGKILL)
        second = wait_until(lambda: (found := find_collector(log)) and found != first and found)
        assert second.pid != first.pid
    finally:
        attached.communicate("", timeout=30)
        stop_collector(log)


def test_a_second_collector_is_told_who_has_the_log(tmp_path: Path) -> None:
    with (
        collecting(tmp_path / "log"),
        pytest.raises(CollectorError, match=rf"already running for .* \(pid {os.getpid()}\)"),
        collecting(tmp_path / "log"),
    ):
        pass


def test_the_notice_of_a_killed_collector_is_never_taken_for_that_of_the_next(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    CollectorNotice(
        pid=1, socket="gone", schema=1, started_ns=1, detail="full", ring_directories=[]
    ).publish(log)
    with collecting(log):
        assert not (log / NOTICE_NAME).exists()
        assert find_collector(log) is None


def test_what_was_published_before_sigterm_is_in_the_log(tmp_path: Path) -> None:
    """Even where nobody reads, so that the next flush would have been some time away."""
    log = tmp_path / "log"
    rings = [ring_for(log) for _ in range(3)]
    with collector_process(log) as process:
        wait_for_collector(log)
        for ring in rings:
            record(ring, 0, 40)
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert sorted(rows(log, "SELECT engine, count(*) FROM steps GROUP BY 1")) == sorted(
        (ring.engine, 40) for ring in rings
    )
    for ring in rings:
        ring.close()
    collect(log)
