"""`query`, `collect` and `doctor` as people run them."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.commands import add_commands
from telemetry.errors import CollectorError, QueryRefused, StepscopeError
from telemetry.records import EngineRow
from tests.telemetry.collector.builders import (
    RINGS,
    collect,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)


def run(*arguments: str) -> int:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--log", type=Path)
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(), [shared])
    options = parser.parse_args(arguments)
    return int(options.run(options))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    return tmp_path / "log"


def test_query_prints_rows(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = ring_for(log)
    record(ring, 0, 3)
    collect(log)
    sql = "SELECT engine, count(*) AS n FROM steps GROUP BY engine"
    assert run("query", "--log", str(log), "--format", "json", sql) == 0
    assert json.loads(capsys.readouterr().out) == [{"engine": f"{ring.engine:016x}", "n": 3}]
    ring.close()


def test_query_reads_standard_input(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(log)
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 7 AS seven"))
    assert run("query", "--log", str(log), "--format", "csv", "-") == 0
    assert capsys.readouterr().out == "seven\n7\n"


@pytest.mark.parametrize("form", ["table", "csv", "json", "arrow", "parquet"])
def test_query_writes_a_file(log: Path, tmp_path: Path, form: str) -> None:
    collect(log)
    output = tmp_path / "out"
    assert (
        run("query", "--log", str(log), "--format", form, "--output", str(output), "FROM steps")
        == 0
    )
    assert output.stat().st_size > 0


def test_query_says_when_rows_are_missing(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collect(log)
    run("query", "--log", str(log), "--max-rows", "2", "FROM range(5)")
    assert "only the first 2 rows are shown: raise --max-rows" in capsys.readouterr().err


def test_query_refuses_to_write(log: Path) -> None:
    collect(log)
    with pytest.raises(QueryRefused, match="DELETE is refused"):
        run("query", "--log", str(log), "DELETE FROM steps")


def test_an_output_that_cannot_be_written_is_named(log: Path, tmp_path: Path) -> None:
    collect(log)
    with pytest.raises(StepscopeError, match=r"cannot write .*no/such: No such file"):
        run("query", "--log", str(log), "SELECT 1", "--output", str(tmp_path / "no" / "such"))


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--timeout", "0"), ("--timeout", "nan"), ("--timeout", "inf"), ("--max-rows", "0")],
)
def test_a_limit_that_is_none_is_refused(log: Path, flag: str, value: str) -> None:
    with pytest.raises(QueryRefused, match=f"{flag} is {value}"):
        run("query", "--log", str(log), "SELECT 1", flag, value)


def test_a_log_that_is_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(CollectorError, match="file cannot be a log directory: File exists"):
        run("collect", "--log", str(path))


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_a_linger_time_that_is_none_is_refused(log: Path, seconds: str) -> None:
    with pytest.raises(CollectorError, match=f"--linger is {seconds}"):
        run("collect", "--log", str(log), f"--linger={seconds}")


def test_collect_drains_until_nothing_is_left(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = ring_for(log)
    record(ring, 0, 3)
    ring.close()
    code = "import sys; from tests.telemetry.test_commands import run; sys.exit(run(*sys.argv[1:]))"
    command = [sys.executable, "-c", code, "collect", "--log", str(log), "--linger", "0"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert rows(log, "SELECT count(*) FROM steps") == [(3,)]


def test_doctor_without_a_log_has_nothing_to_say(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("doctor", "--log", str(log)) == 3
    assert "no engine has been recorded here" in capsys.readouterr().out


def test_doctor_on_a_healthy_engine(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = ring_for(log)
    ring.describe_engine(EngineRow(model="tiny\x1b[31m", settings="{}"))
    record(ring, 0, 30)
    ring.count_preemptions(0)
    with collector_process(log):
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(30,)])
        assert run("doctor", "--log", str(log)) == 0
    out = capsys.readouterr().out
    assert f"engine {ring.engine:016x}  tiny\\x1b[31m" in out
    assert "✓ recording        30 of 30 steps" in out
    assert "✓ alive            step 29, in phase forward for" in out
    assert "✓ dropped          0" in out
    assert "✓ counters agree   preemptions 0 = 0" not in out  # the last step said 29
    assert "▲ counters differ  preemptions 0 recorded, 29 by the engine's own counter" in out
    ring.close()


def test_doctor_looks_for_rings_where_the_collector_does(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = ring_for(log)
    record(ring, 0, 30)
    with collector_process(log):
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(30,)])
        monkeypatch.delenv("STEPSCOPE_RING_DIR")
        run("doctor", "--log", str(log))
    assert "✓ alive            step 29, in phase forward for" in capsys.readouterr().out
    ring.close()


_DYING = """
import os, signal, sys
from pathlib import Path
from tests.telemetry.collector.builders import record, ring_for
ring = ring_for(Path(sys.argv[1]))
record(ring, 0, 8)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("is_collected", [True, False])
def test_doctor_says_where_an_engine_died(
    log: Path, capsys: pytest.CaptureFixture[str], is_collected: bool
) -> None:
    subprocess.run([sys.executable, "-c", _DYING, str(log)], check=False)
    if is_collected:
        collect(log)
    assert run("doctor", "--log", str(log)) == 0
    assert "✗ died             at step 7, in phase forward" in capsys.readouterr().out


def test_doctor_warns_of_an_engine_without_a_collector(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = ring_for(log)
    record(ring, 0, 8)
    run("doctor", "--log", str(log))
    out = capsys.readouterr().out
    assert "✗ collector        none, and 1 running engine(s)" in out
    assert "8 commits in the ring only, never read" in out
    ring.close()


def test_doctor_tells_what_was_dropped(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = ring_for(log)
    record(ring, 0, ring.layout.regions["steps"].capacity + 10, num_dense=0)
    collect(log)
    run("doctor", "--log", str(log))
    out = capsys.readouterr().out
    assert "▲ dropped          10 steps, " in out
    assert "raise STEPSCOPE_RING_MB" in out
    ring.close()


def test_doctor_as_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = ring_for(log)
    record(ring, 0, 3)
    collect(log)
    assert run("doctor", "--log", str(log), "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    assert found["engines"][0]["engine"] == f"{ring.engine:016x}"
    assert {"level", "name", "text"} == set(found["engines"][0]["checks"][0])
    ring.close()
