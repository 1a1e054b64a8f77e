from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from diagnose.commands import add_commands, report_on, run_diagnose
from diagnose.window import choose_window
from tests.diagnose.logs import MemoryLog, described, log_of, pressed, steps
from tests.telemetry.log_builder import MS


def parse(*words: str) -> argparse.Namespace:
    log = argparse.ArgumentParser(add_help=False)
    log.add_argument("--log", type=Path, default=Path("nowhere"))
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(required=True), [log])
    return parser.parse_args(["diagnose", *words])


def call(log: MemoryLog, *words: str, engine: int | None = None) -> int:
    return report_on(log, parse(*words), choose_window(log), engine)


@pytest.fixture(scope="module")
def storm() -> MemoryLog:
    return log_of(pressed(num_evicted=20))


@pytest.fixture(scope="module")
def calm() -> MemoryLog:
    return log_of(steps(described(), 100))


def test_a_finding_alone_does_not_change_the_exit_code(storm: MemoryLog) -> None:
    assert call(storm) == 0


@pytest.mark.parametrize(("level", "code"), [("info", 1), ("high", 1), ("critical", 0)])
def test_fail_on_asks_for_a_level(storm: MemoryLog, level: str, code: int) -> None:
    assert call(storm, "--fail-on", level) == code


def test_a_calm_run_fails_on_nothing(calm: MemoryLog) -> None:
    assert call(calm, "--fail-on", "info") == 0


def test_harmless_preemptions_fail_on_info_only() -> None:
    log = log_of(pressed(num_evicted=3, pause_ns=20 * MS))
    assert call(log, "--fail-on", "info") == 1
    assert call(log, "--fail-on", "medium") == 0


def test_too_little_data_is_three() -> None:
    assert call(log_of(steps(described(), 5))) == 3


def test_a_bad_duration_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_diagnose(parse("--since", "soon")) == 2
    assert "--since is 'soon'" in capsys.readouterr().err


def test_a_bad_engine_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_diagnose(parse("--engine", "zz")) == 2
    assert "16 hex digits" in capsys.readouterr().err


def test_an_engine_that_is_not_there_is_named(
    storm: MemoryLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(storm, engine=99) == 2
    assert "there are 0000000000000001" in capsys.readouterr().err


def test_json_is_json(storm: MemoryLog, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(storm, "--json") == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


def test_sql_of_a_finding_is_printed(storm: MemoryLog, capsys: pytest.CaptureFixture[str]) -> None:
    call(storm, "--json")
    found = json.loads(capsys.readouterr().out)["findings"][0]["id"]
    assert call(storm, "--sql", found) == 0
    statements = capsys.readouterr().out.split(";\n")
    assert storm.query(statements[0]).num_rows == 1


def test_sql_of_an_unknown_finding_lists_those_there_are(
    storm: MemoryLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(storm, "--sql", "kvp-zzzz") == 2
    assert "there are kvp-" in capsys.readouterr().err


def test_one_engine_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of(steps(described(engine=7), 100), pressed(num_evicted=20))
    assert call(log, "--json", engine=7) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert [engine["engine"] for engine in parsed["engines"]] == ["0000000000000007"]


def test_markdown_is_the_incident_report(
    storm: MemoryLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(storm, "--markdown", "--fail-on", "high") == 1
    assert capsys.readouterr().out.startswith("# KV preemption pressure on")
