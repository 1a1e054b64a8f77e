"""What a collector takes, what it says about losses and deaths, and when it leaves."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from telemetry.collector import Collector, find_collector, start_collector, stop_collector
from telemetry.collector.flush import Flush
from telemetry.errors import CollectorError
from telemetry.records import RunClock
from telemetry.store import open_log
from telemetry.store.files import day_of
from telemetry.store.presence import is_collected
from telemetry.vocabulary import EventKind, Phase
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
from tests.telemetry.ring.builders import dense, events, step

NS_PER_DAY = 86_400 * 1_000_000_000


def test_a_second_collector_is_refused(tmp_path: Path) -> None:
    with (
        collecting(tmp_path / "log"),
        pytest.raises(CollectorError, match="already running"),
        Collector(tmp_path / "log"),
    ):
        pass


def test_rows_that_the_ring_overwrote_are_told_exactly(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    capacity = ring.layout.regions["steps"].capacity
    record(ring, 0, capacity + 10, num_dense=0)
    collect(log)
    dropped = rows(
        log,
        "SELECT region, first_lost, last_lost FROM request_events "
        f"WHERE kind = {EventKind.records_dropped:d} AND region = 'steps'",
    )
    assert dropped == [("steps", 0, 9)]
    assert rows(log, "SELECT count(*), min(step), max(step) FROM steps") == [
        (capacity, 10, capacity + 9)
    ]
    ring.close()


def test_events_and_drops_have_numbers_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 4 * ring.layout.regions["events"].capacity // 4 + 100, num_dense=200)
    collect(log, detail="full")
    lost = rows(
        log,
        "SELECT region, last_lost - first_lost + 1 FROM request_events "
        f"WHERE kind = {EventKind.records_dropped:d}",
    )
    assert {"events", "step_requests"} <= {region for region, _ in lost}
    assert rows(log, "SELECT count(*) - count(DISTINCT seq) FROM request_events") == [(0,)]
    num_dense = ring.layout.regions["step_requests"].capacity
    [(stored,)] = rows(log, "SELECT count(*) FROM step_requests")
    assert stored == num_dense
    [(recorded,)] = rows(log, "SELECT num_step_requests FROM drains")
    assert dict(lost)["step_requests"] + stored == recorded
    ring.close()


_DYING_ENGINE = """
import os, signal, sys
from pathlib import Path
from tests.telemetry.collector.builders import record, ring_for
from telemetry.vocabulary import Phase
ring = ring_for(Path(sys.argv[1]))
record(ring, 0, 20)
ring.enter_phase(20, Phase.sample)
print(ring.engine, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_engine_loses_nothing_and_is_told_dead(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", _DYING_ENGINE, str(log)], capture_output=True, text=True, check=False
    )
    engine = int(done.stdout)
    collect(log)
    collect(log)
    died = f"kind = {EventKind.engine_died:d}"
    assert rows(log, f"SELECT engine, step, reason FROM request_events WHERE {died}") == [
        (engine, 20, Phase.sample)
    ]
    assert rows(log, "SELECT count(*), count(DISTINCT step) FROM steps") == [(20, 20)]
    assert rows(log, "SELECT end_ts = newest_ts FROM log_ends") == [(True,)]
    assert rows(log, "SELECT closed FROM drains") == [(True,)]
    assert rows(log, "SELECT max(num_preemptions) FROM heartbeats") == [(20,)]
    assert list((tmp_path / RINGS).iterdir()) == []


def test_an_engine_that_says_good_bye_is_not_told_dead(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    ring.close()
    collect(log)
    died = f"kind = {EventKind.engine_died:d}"
    assert rows(log, f"SELECT count(*) FROM request_events WHERE {died}") == [(0,)]
    assert rows(log, "SELECT closed FROM drains") == [(True,)]
    assert list((tmp_path / RINGS).iterdir()) == []


def test_a_ring_of_a_living_engine_stays(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    collect(log)
    assert ring.path.exists()
    record(ring, 3, 5)
    collect(log)
    assert rows(log, "SELECT step FROM steps ORDER BY step") == [(n,) for n in range(5)]
    ring.close()


def test_two_logs_take_their_own_rings_only(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    rings = [ring_for(one), ring_for(two)]
    for ring in rings:
        record(ring, 0, 2)
    collect(one)
    collect(two)
    assert rows(one, "SELECT DISTINCT engine FROM steps") == [(rings[0].engine,)]
    assert rows(two, "SELECT DISTINCT engine FROM steps") == [(rings[1].engine,)]
    for ring in rings:
        ring.close()


def test_a_ring_without_a_log_is_taken_by_exactly_one_collector(tmp_path: Path) -> None:
    ring = ring_for(tmp_path / "one", bound=False)
    record(ring, 0, 2)
    with collecting(tmp_path / "one") as first, collecting(tmp_path / "two") as second:
        first.drain()
        second.drain()
    assert rows(tmp_path / "one", "SELECT count(*) FROM steps") == [(2,)]
    assert rows(tmp_path / "two", "SELECT count(*) FROM steps") == [(0,)]
    ring.close()
    collect(tmp_path / "one")
    assert list((tmp_path / RINGS).iterdir()) == []


def test_transitions_keep_no_dense_rows_and_full_goes_on_from_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    collect(log, detail="transitions")
    assert rows(log, "SELECT count(*) FROM step_requests") == [(0,)]
    record(ring, 3, 5)
    collect(log, detail="full")
    record(ring, 5, 6)
    collect(log, detail="transitions")
    record(ring, 6, 7)
    collect(log, detail="full")
    assert rows(log, "SELECT DISTINCT step FROM step_requests ORDER BY 1") == [(3,), (4,), (6,)]
    dropped = f"kind = {EventKind.records_dropped:d}"
    assert rows(log, f"SELECT count(*) FROM request_events WHERE {dropped}") == [(0,)]
    ring.close()


def test_rows_go_to_the_file_of_their_day(tmp_path: Path) -> None:
    log = tmp_path / "log"
    clock = RunClock.start()
    ring = ring_for(log, clock=clock)
    midnight = clock.now() // NS_PER_DAY * NS_PER_DAY
    for number in range(6):
        ts = midnight + number - 3
        ring.record_step(step(number, ts), events(number, ts), dense(number, 2))
    collect(log, detail="full")
    yesterday, today = day_of(midnight - 1), day_of(midnight)
    assert {p.name for p in log.glob("*.duckdb")} == {
        f"{day}{kind}.duckdb" for day in (yesterday, today) for kind in ("", ".dense")
    }
    for table in ("steps", "step_requests"):
        got = rows(log, f"SELECT DISTINCT step FROM {table} ORDER BY step")
        assert got == [(n,) for n in range(6)]
    (log / f"{today}.duckdb").unlink()
    assert rows(log, "SELECT step FROM steps ORDER BY step") == [(0,), (1,), (2,)]
    ring.close()


def test_an_engine_that_runs_past_midnight_is_one_engine(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    midnight = ring._clock.now() // NS_PER_DAY * NS_PER_DAY
    ring.record_step(step(0, midnight - 1), [], None)
    collect(log)
    ring.record_step(step(1, midnight + 1), [], None)
    collect(log)
    assert rows(log, "SELECT count(*) FROM engines") == [(1,)]
    assert rows(log, "SELECT step FROM steps ORDER BY step") == [(0,), (1,)]
    ring.close()


def test_a_ring_that_takes_several_flushes_is_drained_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.collector.flush.MAX_BATCHES", 1)
    log = tmp_path / "log"
    ring = ring_for(log)
    midnight = ring._clock.now() // NS_PER_DAY * NS_PER_DAY
    for number in range(3):
        ring.record_step(step(number, midnight + (number - 2) * NS_PER_DAY), [], None)
    ring.close()
    collect(log)
    assert rows(log, "SELECT step FROM steps ORDER BY step") == [(0,), (1,), (2,)]
    assert list((tmp_path / RINGS).iterdir()) == []


def test_what_is_no_ring_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 1)
    (tmp_path / RINGS / "00000000000000ff.ring").write_bytes(b"junk")
    collect(log)
    assert rows(log, "SELECT count(*) FROM steps") == [(1,)]
    assert (tmp_path / RINGS / "00000000000000ff.ring").exists()
    ring.close()


def test_a_ring_that_makes_no_sense_costs_the_others_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    bad, good = ring_for(log), ring_for(log)
    for ring in (bad, good):
        record(ring, 0, 3)
    commits = bad.layout.regions["commits"]
    with bad.path.open("r+b") as file:
        file.seek(commits.offset)
        file.write(random.Random(3).randbytes(3 * commits.row_bytes))
    collect(log)
    assert rows(log, "SELECT engine, step FROM steps ORDER BY step") == [
        (good.engine, n) for n in range(3)
    ]
    assert bad.path.exists()
    bad.close()
    good.close()


def test_a_damaged_day_does_not_stop_the_recording(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "2020-01-01.duckdb").write_bytes(b"junk" * 10_000)
    ring = ring_for(log)
    record(ring, 0, 3)
    collect(log)
    (log / "2020-01-01.duckdb").unlink()
    assert rows(log, "SELECT count(*) FROM steps") == [(3,)]
    ring.close()


def test_it_leaves_when_the_last_ring_is_drained(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    with collector_process(log, linger=0.3) as process:
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(3,)])
        assert process.poll() is None
        ring.close()
        assert process.wait(timeout=30) == 0
    assert {p.name for p in log.iterdir()} == {
        "collector.lock", *(p.name for p in log.glob("*.duckdb"))
    }  # fmt: skip
    assert rows(log, "SELECT count(*) FROM steps") == [(3,)]


def test_sigterm_flushes_once_more(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    with collector_process(log) as process:
        wait_for_collector(log)
        record(ring, 0, 50)
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert rows(log, "SELECT count(*) FROM steps") == [(50,)]
    assert not (log / "collector.json").exists()
    assert not list(log.glob("*.wal"))
    ring.close()


def test_start_finds_the_one_that_runs_and_stop_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    log = tmp_path / "log"
    try:
        first = start_collector(log, linger_seconds=60)
        assert start_collector(log) == first
        assert find_collector(log) == first
        with open_log(log) as opened:
            assert opened.is_live
    finally:
        assert stop_collector(log)
    assert not is_collected(log)
    assert not stop_collector(log)


def test_a_reader_lets_go_of_the_files_when_a_collector_wants_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    collect(log)
    with open_log(log) as reader:
        assert reader.query("SELECT count(*) AS n FROM steps").to_pylist() == [{"n": 3}]
        assert not reader.is_live
        with collector_process(log):
            record(ring, 3, 5)
            wait_for_collector(log)
            count = "SELECT count(*) AS n FROM steps"
            wait_until(lambda: reader.query(count).to_pylist() == [{"n": 5}])
            assert reader.is_live
        wait_until(lambda: not is_collected(log))
        assert reader.query(count).to_pylist() == [{"n": 5}]
        assert not reader.is_live
    ring.close()


def test_a_flush_is_not_held_up_by_a_long_query(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    slow = (
        "import sys; from pathlib import Path; from telemetry.store import open_log\n"
        "open_log(Path(sys.argv[1])).query("
        "'SELECT sum(a.range * b.range) FROM range(1000000) a, range(10000000) b')"
    )
    with collector_process(log):
        wait_for_collector(log)
        query = subprocess.Popen([sys.executable, "-c", slow, str(log)], stderr=subprocess.PIPE)
        try:
            for number in range(3):
                record(ring, number, number + 1)
                wait_until(lambda n=number: rows(log, "SELECT count(*) FROM steps") == [(n + 1,)])
            assert query.poll() is None
        finally:
            query.kill()
            query.communicate()
    ring.close()


def test_a_flush_that_keeps_failing_is_told_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 5, num_dense=0)

    def fail(self: Flush) -> None:
        raise duckdb.IOException("the disk is full")

    with collecting(log) as collector:
        monkeypatch.setattr(collector._stop, "wait", lambda seconds: False)
        with monkeypatch.context() as broken:
            broken.setattr(Flush, "write", fail)
            for _ in range(3):
                collector.drain()
        collector.drain()
    assert [r.getMessage() for r in caplog.records].count(
        "a flush failed and is done again: the disk is full"
    ) == 1
    assert rows(log, "SELECT count(*) FROM steps") == [(5,)]
    ring.close()
