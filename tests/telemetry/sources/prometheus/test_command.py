"""`stepscope import prometheus`, as a user runs it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import stepscope
from tests.captured import captured_scrapes
from tests.telemetry.sources.prometheus.pages import (
    START,
    engine,
    rows,
    serving,
    text,
    vllm_page,
    write,
)


def run(log: Path, *arguments: str) -> int:
    return stepscope.main(["import", "prometheus", *arguments, "--log", str(log)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_directory(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = captured_scrapes("connector_stall", tmp_path)
    assert run(log, str(directory)) == 0
    told = capsys.readouterr()
    assert f"{directory}: 9,930 rows of 30 pages" in told.out
    assert "2026-11-29 12:06:48 to 2026-11-29 12:06:54 UTC" in told.out
    assert "docs/sources.md" in told.out
    assert told.err == ""
    assert run(log, str(directory)) == 2
    assert "already: imported from" in capsys.readouterr().err


def test_a_target_can_be_named(tmp_path: Path, log: Path) -> None:
    directory = write(tmp_path / "pages", vllm_page(num_requests_running=1))
    assert run(log, str(directory), "--target", "10.0.0.1:8000") == 0
    assert rows(log, "SELECT engine, api_url FROM engines") == [
        (engine("10.0.0.1:8000"), "10.0.0.1:8000")
    ]


def test_a_file_is_a_page_where_its_name_has_a_time_and_a_dump_otherwise(
    tmp_path: Path, log: Path
) -> None:
    directory = tmp_path / "host"
    directory.mkdir()
    page = directory / f"m_{START}.prom.gz"
    page.write_bytes(gzip.compress(vllm_page(num_requests_running=1).encode()))
    dump = directory / "dump.om"
    dump.write_text(f"vllm:num_requests_running 2 {START + 5}\n# EOF\n")
    assert run(log, str(page)) == run(log, str(dump), "--target", "host") == 0
    assert rows(log, "SELECT engine, ts, value FROM samples ORDER BY ts") == [
        (engine("host"), START * 10**9, 1.0),
        (engine("host"), (START + 5) * 10**9, 2.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "nowhere is not there: name a directory of scrapes"),
        (["."], "holds no pages"),
        (["ftp://x"], "write an address"),
        (["http://x", "--match", "a"], "--match is 'a': write LABEL=VALUE"),
        (["http://x", "--since", "soon"], "--since is 'soon': write a length, like 15s"),
        (["http://x", "--start", "soon"], "--start is 'soon': write a day and time in UTC"),
        (["http://x", "--start", "1", "--since", "1h"], "choose one"),
        (["http://x", "--start", "5", "--end", "4"], "ends before it begins: 1970"),
        (["http://x", "--step", "10ms"], "--step is 10ms: 1s is the shortest"),
        ([".", "--since", "1h"], "--since chooses from a Prometheus server, and . is none"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(
    tmp_path: Path,
    log: Path,
    arguments: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(log, *arguments) == 2
    assert told in capsys.readouterr().err
    assert not log.exists()


def test_an_hour_is_asked_for_unless_somebody_wishes_otherwise(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(text('{"status": "success", "data": []}')) as server:
        assert run(log, server.url) == 2
        (path, _), *_ = server.seen
    start, end = (float(path.split(f"{name}=")[1].split("&")[0]) for name in ("start", "end"))
    assert end - start == 3600
    assert "has nothing of a vLLM or an SGLang in this window" in capsys.readouterr().err
