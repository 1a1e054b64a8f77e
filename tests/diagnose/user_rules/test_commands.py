"""`stepscope rules`, and the example of docs/user-rules.md as it is shown there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diagnose.alerts.export import generated
from diagnose.rules import RULES
from diagnose.user_rules.definition import COMPARISONS
from diagnose.user_rules.document import UserRuleError
from diagnose.user_rules.template import FORMATS
from stepscope import build_parser
from tests.diagnose.user_rules.files import DOCS, changed, example, put


def run(*words: str) -> int:
    options = build_parser().parse_args(["rules", *words])
    return int(options.run(options))


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    directory = tmp_path / "rules"
    directory.mkdir()
    put(directory, example())
    return directory


def test_the_documented_output_is_the_programs(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("test", str(rules)) == 0
    shown = re.search(r"\$ stepscope rules test DIR\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert shown is not None
    assert capsys.readouterr().out == shown[1]


def test_a_failing_test_fails_loudly_with_its_line(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(rules, changed(("share: 0.25}", "share: 0.15}")))
    assert run("test", str(rules)) == 1
    told = capsys.readouterr().out
    assert "FAIL long-prompt-quota: over: a quarter" in told
    assert f"{path}:45: expected finding, got healthy: 15.0 % of 100" in told
    assert "1 rule, 6 tests, 1 failed" in told


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("num_long / nullif", "num_lng / nullif", "cannot be run"),
        ("AS share,", "AS part,", "gives no column share"),
        ("{num_long} of {num_arrivals} prompts", "{num_lng} prompts", "num_lng: no such column"),
        ("says: 25.0 %", "says: 26.0 %", "does not say '26.0 % of 100 prompts'"),
        ("FROM range(100)", "FROM range(100", "cannot be run"),
        ("SELECT n AS request,", "SELECT getenv('HOME') AS host, n AS request,", "is refused"),
        ("{request: 1, ts: 1000000000}", "{request: many, ts: 1000000000}", "cannot be run"),
    ],
)
def test_what_fails_in_a_file_is_told(
    old: str, new: str, problem: str, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(rules, changed((old, new)))
    assert run("test", str(rules)) == 1
    assert problem in capsys.readouterr().out


def test_a_directory_without_a_rule_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("test", str(tmp_path)) == 2
    assert "holds no rule" in capsys.readouterr().err


def test_all_rules_are_listed_with_where_they_come_from(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list", "--rules", str(rules)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "Stepscope," in line] == list(RULES)
    (own,) = [line for line in lines if "Stepscope," not in line]
    assert own.startswith("long-prompt-quota ")
    assert str(rules / "long-prompt-quota.yaml") in own


def test_a_page_is_shown_as_ours_are(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "long-prompt-quota", "--rules", str(rules)) == 0
    told = capsys.readouterr().out
    assert "## What it measures\n" in told
    assert "| `long_tokens` | 8,000 | capacity plan: what counts as long |" in told
    assert run("show", "worker-hang", "--rules", str(rules)) == 0
    assert capsys.readouterr().out == (DOCS.parent / "rules" / "worker-hang.md").read_text()


def test_an_unknown_page_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "worker-hung") == 2
    assert "worker-hang" in capsys.readouterr().err


def test_alerts_runbooks_and_own_pages_are_exported(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ("--max-num-seqs", "64", "--runbooks", "https://runbooks.example/")
    assert run("export", str(out), "--rules", str(rules), *words) == 0
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert written == {*generated(), "rules/long-prompt-quota.md"}
    told = (out / "prometheus" / "stepscope.rules.yml").read_text()
    assert "vllm:num_requests_running * 0 + 64" in told
    assert "runbook_url: https://runbooks.example/worker-hang.md" in told
    assert len(capsys.readouterr().out.splitlines()) == len(written)


def test_a_senseless_number_of_slots_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("export", str(tmp_path), "--max-num-seqs", "0") == 2
    assert "it must be 1 or more" in capsys.readouterr().err


def test_a_file_that_is_none_ends_a_command(rules: Path) -> None:
    put(rules, "id: x", "broken.yaml")
    with pytest.raises(UserRuleError, match=r"broken\.yaml:1: id"):
        run("list", "--rules", str(rules))


def test_every_name_of_a_file_is_documented(rules: Path) -> None:
    put(rules, changed(("version: 1", "version: 1\nzzz: 1")))
    with pytest.raises(UserRuleError) as error:
        run("list", "--rules", str(rules))
    names = str(error.value).rpartition("'zzz' is not known: ")[2].split(", ")
    assert {"id", "enough", "judges", "tests"} <= set(names)
    told = DOCS.read_text()
    for name in names:
        assert re.search(rf"`{name}[`.]", told), name


def test_every_word_of_a_file_is_documented() -> None:
    told = DOCS.read_text()
    for word in (*COMPARISONS, *FORMATS, "not_measured", "silenced_by", "opened_ts", "last_ts"):
        assert f"`{word}`" in told or f":{word}}}" in told, word
