"""A step log opens whatever state it was left in, or says why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.errors import CollectorError, LogBusy, LogDamaged, LogNotFound, QueryFailed
from telemetry.records import SCHEMA_VERSION
from telemetry.store import log as log_module
from telemetry.store import open_log
from telemetry.tables import TABLES
from tests.telemetry.collector.builders import collect, record, ring_for, rows


@pytest.mark.parametrize("make", [True, False])
def test_a_directory_without_a_log_is_named_with_a_remedy(tmp_path: Path, make: bool) -> None:
    log = tmp_path / "log"
    if make:
        log.mkdir()
    with pytest.raises(LogNotFound, match=f"{log} holds no step log: start an engine"):
        open_log(log)


def test_an_empty_log_has_every_table(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    for table in [*TABLES, "step_requests", "dense_drains"]:
        assert rows(log, f"SELECT count(*) FROM {table}") == [(0,)]


_INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from tests.telemetry.collector.builders import *
log = Path(sys.argv[1])
ring = ring_for(log)
record(ring, 0, 10)
with collecting(log, detail="full") as collector:
    collector.drain()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_interrupted_log_opens_with_all_that_was_flushed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED, str(log)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(log.glob("*.wal"))
    assert rows(log, "SELECT count(*) FROM steps") == [(10,)]
    assert rows(log, "SELECT count(*) FROM step_requests") == [(20,)]


def test_a_damaged_file_is_an_error_that_names_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    [path] = log.glob("*.duckdb")
    path.write_bytes(b"junk" * 10_000)
    with pytest.raises(LogDamaged, match=str(log)):
        open_log(log)


def test_views_that_a_stranger_stored_are_ignored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    [path] = log.glob("*.duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE VIEW preemptions AS SELECT 'forged' AS cause")
    assert rows(log, "SELECT count(*) FROM preemptions") == [(0,)]


def test_a_file_of_an_older_version_opens_and_is_brought_up_to_date(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 2)
    collect(log)
    [path] = log.glob("*.duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE steps DROP COLUMN num_running")
    assert rows(log, "SELECT DISTINCT num_running FROM steps") == [(None,)]
    record(ring, 2, 3)
    collect(log)
    assert rows(log, "SELECT step, num_running FROM steps ORDER BY step") == [
        (0, None),
        (1, None),
        (2, 2),
    ]
    ring.close()


def test_a_file_of_an_older_version_that_lacks_a_table_opens(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 2)
    collect(log)
    ring.close()
    [path] = log.glob("*.duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE session_inputs")
        connection.execute("UPDATE schema_info SET version = 1")
    assert rows(log, "SELECT count(*) FROM session_inputs") == [(0,)]
    assert rows(log, "SELECT count(*) FROM steps") == [(2,)]
    collect(log)
    assert rows(log, "SELECT version FROM schema_info ORDER BY version") == [
        (1,),
        (SCHEMA_VERSION,),
    ]


def test_files_have_the_storage_version_that_duckdb_1_0_reads(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    [path] = log.glob("*.duckdb")
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH '{path}' AS day (READ_ONLY)")
        tags = connection.execute(
            "SELECT tags FROM duckdb_databases() WHERE database_name = 'day'"
        ).fetchall()
    assert tags == [({"storage_version": "v1.0.0+"},)]


def test_files_that_another_process_writes_are_busy_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_START_SECONDS", 0.2)
    log = tmp_path / "log"
    collect(log)
    [path] = log.glob("*.duckdb")
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(LogBusy, match=str(log)):
        open_log(log)
    holder.communicate("\n", timeout=30)


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    opened = open_log(log)
    opened.close()
    with pytest.raises(LogNotFound, match="was closed"):
        opened.query("SELECT 1")


def test_a_reader_in_the_background_opens_no_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    with pytest.raises(CollectorError, match="nobody collects"):
        open_log(log, background=True)


def test_readers_do_not_keep_each_other_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    with open_log(log) as one, open_log(log) as two:
        assert one.query("SELECT 1 AS a").equals(two.query("SELECT 1 AS a"))


def test_reading_changes_no_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(log)
    before = {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in log.iterdir()}
    rows(log, "SELECT count(*) FROM steps")
    after = {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in log.iterdir()}
    assert before == after


def test_a_path_with_a_quote_opens(tmp_path: Path) -> None:
    log = tmp_path / "it's"
    os.mkdir(log)
    collect(log)
    assert rows(log, "SELECT count(*) FROM steps") == [(0,)]


@pytest.mark.parametrize(("num_broken", "is_answered"), [(1, True), (2, False)])
def test_a_broken_instance_is_opened_anew_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_broken: int, is_answered: bool
) -> None:
    """DuckDB 1.5.5 sometimes fails within a window function, and then answers nothing any more."""
    collect(tmp_path / "log")
    left, run_query = [num_broken], log_module.run_query

    def breaking(*asked: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise QueryFailed("FATAL Error: Failed: database has been invalidated")
        return run_query(*asked)

    monkeypatch.setattr(log_module, "run_query", breaking)
    with open_log(tmp_path / "log") as log:
        if is_answered:
            assert log.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
        else:
            with pytest.raises(QueryFailed, match="invalidated"):
                log.query("SELECT 1 AS one")
