"""Who judges a log judges it by the rules beside it too: the command, the report, the analyst."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from diagnose.analyst import Analyst
from diagnose.rules import RULES
from stepscope import build_parser
from tests.dashboard.logs import calm, write_log
from tests.diagnose.user_rules.files import changed, put

ID = "long-prompt-quota"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed log of prompts of 64 tokens, with a rule beside it that calls them long."""
    log = tmp_path_factory.mktemp("own") / "log"
    write_log(log, calm().builder())
    (log / "rules").mkdir()
    put(log / "rules", changed(("{value: 8000,", "{value: 10,")))
    return log


def run(*words: str) -> int:
    options = build_parser().parse_args(words)
    return int(options.run(options))


def found(log: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert run("diagnose", "--json", "--log", str(log), *words) == 0
    return [each["rule"] for each in json.loads(capsys.readouterr().out)["findings"]]


def test_diagnose_judges_by_the_rules_beside_the_log(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ID in found(log, capsys)


def test_diagnose_judges_by_the_rules_that_are_named(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ID not in found(log, capsys, "--rules", str(tmp_path))


def test_diagnose_fails_on_them_as_on_ours(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("diagnose", "--log", str(log), "--fail-on", "high") == 1
    assert "100.0 % of 84 prompts are over 10 tokens" in capsys.readouterr().out


def test_a_report_holds_them(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", "--log", str(log), "--markdown") == 0
    assert "100.0 % of 84 prompts are over 10 tokens" in capsys.readouterr().out


def test_the_analyst_judges_by_them(log: Path) -> None:
    assert {rule.id for rule in Analyst(log)._rules()} == {*RULES, ID}


def test_the_analyst_leaves_out_files_that_are_no_rules_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rules").mkdir()
    path = put(tmp_path / "rules", "id: x")
    analyst = Analyst(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert {rule.id for rule in analyst._rules()} == set(RULES)
        assert {rule.id for rule in analyst._rules()} == set(RULES)
    (told,) = caplog.messages
    assert str(path) in told


def test_the_analyst_reads_a_file_again_when_it_has_changed(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    analyst = Analyst(tmp_path)
    put(tmp_path / "rules", changed())
    first = analyst._rules()
    assert analyst._rules() is first
    put(tmp_path / "rules", changed(("id: long-prompt-quota", "id: another-prompt-quota")))
    assert {rule.id for rule in analyst._rules()} == {*RULES, "another-prompt-quota"}
