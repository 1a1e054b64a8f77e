"""`stepscope import vllm-log`, as its user types it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from telemetry.sources.identity import engine_number
from telemetry.sources.vllm_log.naming import log_name
from tests.telemetry.sources.vllm_log.builders import LINE, Imported, import_text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/var/log/vllm.log", "vllm.log"),
        ("vllm.log.gz", "vllm.log"),
        ("vllm.log.12.gz", "vllm.log"),
        ("vllm.log-20261129.gz", "vllm.log"),
        ("vllm-7_default_server-ab12.log", "vllm-7_default_server-ab12.log"),
        ("/var/log/pods/ns_vllm-0_uid/server/3.log", "ns_vllm-0_uid/server/log"),
        ("/srv/logs/7/20261129.log", "logs/7/log"),
    ],
)
def test_a_log_has_one_name_in_all_its_parts(path: str, name: str) -> None:
    assert log_name(Path(path)) == name


def test_the_engine_is_the_name_of_the_log_and_the_rank(tmp_path: Path) -> None:
    assert import_text(tmp_path, LINE).engine()["engine"] == engine_number(
        "vllm-log", "vllm.log", "0"
    )


def test_parts_of_a_log_are_one_engine(tmp_path: Path) -> None:
    import_text(tmp_path, LINE, name="vllm.log.1")
    imported = import_text(tmp_path, LINE.replace("09:26", "09:27"), name="vllm.log")
    assert imported.rows("SELECT count(*) AS n FROM imports") == [{"n": 2}]
    assert imported.rows("SELECT count(DISTINCT engine) AS n FROM samples") == [{"n": 1}]


def test_a_name_that_is_given_counts(tmp_path: Path) -> None:
    imported = import_text(tmp_path, LINE, "--name", "replica-7")
    assert imported.engine()["engine"] == engine_number("vllm-log", "replica-7", "0")


def test_the_same_content_is_refused_also_packed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import gzip

    import_text(tmp_path, LINE)
    again = import_text(tmp_path, gzip.compress(LINE.encode()), name="copy.log.gz")
    assert again.code == 2
    assert "already: imported from" in capsys.readouterr().err
    assert again.rows("SELECT count(*) AS n FROM samples") == [{"n": 6}]


def test_one_bad_file_of_several_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, other = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "c.log"
    good.write_text(LINE)
    bad.write_text("")
    other.write_text(LINE.replace("09:26", "09:27"))
    files = [str(path) for path in (good, bad, other)]
    assert stepscope.main(["import", "vllm-log", *files, "--log", str(tmp_path / "log")]) == 2
    assert "b.log is empty" in capsys.readouterr().err
    assert Imported(tmp_path / "log", 2).rows("SELECT count(*) AS n FROM imports") == [{"n": 2}]


def test_standard_input_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    log = tmp_path / "log"
    code = stepscope.main(["import", "vllm-log", "-", "--name", "vllm-0", "--log", str(log)])
    imported = Imported(log, code)
    assert imported.values()["log:running"] == 12
    assert imported.told()["name"] == "standard input"


def test_standard_input_without_a_name_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    log = tmp_path / "log"
    imported = Imported(log, stepscope.main(["import", "vllm-log", "-", "--log", str(log)]))
    assert any("has no name of its own" in note for note in imported.told()["notes"])


def test_the_zone_moves_the_times(tmp_path: Path) -> None:
    imported = import_text(tmp_path, LINE, "--tz", "America/New_York")
    (row,) = imported.rows("SELECT DISTINCT strftime(utc(ts), '%d %H:%M') AS time FROM samples")
    assert row == {"time": "14 13:26"}
    assert any("taken as of America/New_York" in note for note in imported.told()["notes"])


def test_the_year_is_that_of_the_file_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "vllm.log"
    file.write_text(LINE)
    os.utime(file, (1_700_000_000, 1_700_000_000))  # 2023-11-14
    code = stepscope.main(["import", "vllm-log", str(file), "--log", str(tmp_path / "log")])
    imported = Imported(tmp_path / "log", code)
    (row,) = imported.rows("SELECT DISTINCT strftime(utc(ts), '%Y-%m-%d') AS day FROM samples")
    assert row == {"day": "2023-03-14"}
    assert any(
        "2023, since the file was last written on 2023-11-14" in n for n in imported.told()["notes"]
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--tz", "Nowhere/City"], "--tz is 'Nowhere/City'"),
        (["--year", "26"], "--year is 26: write a year between 1970 and 9000"),
    ],
)
def test_a_flag_that_makes_no_sense_is_refused(
    tmp_path: Path, flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "vllm.log"
    file.write_text(LINE)
    log = tmp_path / "log"
    assert stepscope.main(["import", "vllm-log", str(file), "--log", str(log), *flags]) == 2
    assert sentence in capsys.readouterr().err
    assert not log.exists()


def test_it_says_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_text(tmp_path, LINE + "what is this\n")
    shown = capsys.readouterr().out
    assert "vllm.log: 6 rows of 1 lines" in shown
    assert "not read  1" in shown
    assert "line 2: xxxx xx xxxx (12 characters)" in shown
    assert "rank 0" in shown


def test_the_line_after_the_line_of_numbers_has_its_time(tmp_path: Path) -> None:
    speculation = "INFO 03-14 09:26:53 [metrics.py:86] SpecDecoding metrics: Accepted: 9 tokens\n"
    imported = import_text(tmp_path, LINE + speculation)
    assert imported.rows("SELECT count(DISTINCT ts) AS n FROM samples") == [{"n": 1}]
    assert imported.values()["log:spec_accepted_tokens"] == 9


def test_a_terminal_sees_how_far_it_is(tmp_path: Path) -> None:
    file = tmp_path / "vllm.log"
    file.write_text(LINE * 1000)
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "stepscope", "import", "vllm-log", str(file)]
    with open(reader, "rb", buffering=0) as screen:
        subprocess.run(
            [*command, "--log", str(tmp_path / "log")],
            stdout=subprocess.DEVNULL,
            stderr=terminal,
            cwd=Path(__file__).parents[4],
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
            check=True,
        )
        os.close(terminal)
        shown = screen.read(1 << 16).decode()
    assert "checking" in shown
    assert "reading" in shown
    assert "kB" in shown
