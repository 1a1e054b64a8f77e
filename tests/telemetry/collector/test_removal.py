"""A collector removes what is due, and says so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope import main
from telemetry.collector.removal import Remover
from telemetry.collector.retention import CHECK_SECONDS, PATIENCE_SECONDS, RetentionLimits
from telemetry.doctor import examine, text_report
from telemetry.records import RunClock
from telemetry.store.files import day_files
from telemetry.store.writer import LogWriter
from tests.telemetry.collector.builders import (
    collect,
    collecting,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
)

DAYS = ["2026-11-20", "2026-11-27", "2026-11-29"]
TODAY = 1_795_910_400_000_000_000 + 3_600 * 10**9
NS_PER_DAY = 86_400 * 10**9


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "log"
    log.mkdir()
    for day in DAYS:
        LogWriter(log, [day], dense=True).close()
    return log


@pytest.fixture
def writer(log: Path) -> Iterator[LogWriter]:
    writer = LogWriter(log, ["2026-11-29"], dense=True)
    yield writer
    writer.close()


def names(log: Path) -> list[str]:
    return [f"{file.day[8:]}{'d' if file.dense else ''}" for file in day_files(log)]


def remover(log: Path, clock: Clock | None = None, **limits: int) -> Remover:
    return Remover(log, RetentionLimits(**limits), wall=lambda: TODAY, monotonic=clock or Clock())


def test_files_go_and_the_others_stay_readable(log: Path, writer: LogWriter) -> None:
    gone = remover(log, keep_days=5, keep_dense_days=1).remove_due(writer, [])
    assert len(gone) == 3
    assert names(log) == ["27", "29", "29d"]
    with writer.reader() as reader:
        assert reader.execute("SELECT count(*) FROM step_requests").fetchone() == (0,)


def test_what_is_gone_is_counted_in_the_log_and_told(log: Path, writer: LogWriter) -> None:
    size = (log / "2026-11-20.dense.duckdb").stat().st_size
    remover(log, keep_dense_days=5).remove_due(writer, [])
    writer.close()
    assert rows(log, "SELECT day, is_dense, size_bytes, limit_name FROM removed_days") == [
        ("2026-11-20", True, size, "keep_dense_days")
    ]
    text = text_report(examine(log), colour=False)
    assert "1 files" in text
    assert "by keep_dense_days, up to 2026-11-20" in text


def test_a_log_is_looked_at_once_a_minute(log: Path, writer: LogWriter) -> None:
    clock = Clock()
    removes = remover(log, clock, keep_days=14)
    assert removes.remove_due(writer, []) == []
    shutil.copy(log / "2026-11-20.duckdb", log / "2026-11-01.duckdb")
    clock.now += CHECK_SECONDS - 1
    assert removes.remove_due(writer, []) == []
    clock.now += 1
    assert len(removes.remove_due(writer, [])) == 1


def test_a_running_query_is_waited_for_but_not_for_ever(log: Path, writer: LogWriter) -> None:
    clock = Clock()
    removes = remover(log, clock, keep_days=5)
    with writer.reader():
        assert removes.remove_due(writer, []) == []
        clock.now += PATIENCE_SECONDS - 1
        assert removes.remove_due(writer, []) == []
    assert len(names(log)) == 6
    assert len(removes.remove_due(writer, [])) == 2


def test_a_day_that_says_how_far_a_ring_was_read_stays(tmp_path: Path) -> None:
    """Without its position a collector that starts anew would read the ring once more."""
    log = tmp_path / "log"
    now = RunClock.start()
    long_ago = RunClock(now.wall_anchor_ns - 10 * NS_PER_DAY, now.monotonic_anchor_ns)
    ring = ring_for(log, clock=long_ago)
    record(ring, 0, 1)
    collect(log, detail="full")
    collect(log, detail="full", limits=RetentionLimits(keep_days=3))
    collect(log, detail="full", limits=RetentionLimits(keep_days=3))
    assert rows(log, "SELECT count(*) FROM steps") == [(1,)]
    ring.close()
    collect(log, detail="full")
    collect(log, detail="full", limits=RetentionLimits(keep_days=3))
    assert rows(log, "SELECT count(*) FROM steps") == [(0,)]


def test_rows_go_on_where_they_were_after_a_removal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    LogWriter(log, ["2020-01-01"], dense=False).close()
    ring = ring_for(log)
    record(ring, 0, 3)
    with collecting(log, limits=RetentionLimits(keep_days=3)) as collector:
        collector.drain()
        record(ring, 3, 5)
        collector.drain()
    ring.close()
    assert all(file.day > "2020-01-01" for file in day_files(log))
    assert rows(log, "SELECT count(*), count(DISTINCT step) FROM steps") == [(5, 5)]


def test_the_command_takes_detail_and_limits_and_refuses_what_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_KEEP_DAYS", "7")
    collect_ = ["collect", "--log", str(tmp_path / "log")]
    assert main([*collect_, "--max-bytes", "much"]) == 2
    assert "--max-bytes is 'much': write a size" in capsys.readouterr().err
    assert main([*collect_, "--detail", "everything"]) == 2
    assert "detail is 'everything': it is one of" in capsys.readouterr().err
    monkeypatch.setenv("STEPSCOPE_KEEP_DAYS", "a week")
    assert main(collect_) == 2
    assert "--keep-days is 'a week'" in capsys.readouterr().err


def test_a_live_log_says_how_long_it_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    prologue = "os.environ |= {'STEPSCOPE_KEEP_DAYS': '7', 'STEPSCOPE_MAX_BYTES': '2G'}"
    with collector_process(log, detail="sampled=5", prologue=prologue):
        wait_for_collector(log)
        text = text_report(examine(log), colour=False)
    assert "detail sampled=5" in text
    assert "kept: 7 days, at most 2 GiB" in text
