"""The rules as `promtool` judges them: valid, each alert at its threshold and on look-alikes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.alerts.recorder import FINDING, RECORDER
from diagnose.alerts.rules_file import rules_document
from diagnose.alerts.runbooks import watched
from diagnose.alerts.yaml_text import yaml_text
from tests.diagnose.alerts.clauses import without_each

PROMTOOL = shutil.which("promtool")
PROMETHEUS = Path(__file__).parents[3] / "deploy" / "prometheus"
TESTS = PROMETHEUS / "tests"
ALERTS = (*watched(), FINDING.alert, *(each.alert for each in RECORDER))
KINDS = ("under", "at", "over", "absent", "look-alike")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool: apt-get install prometheus"
)


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    command = [PROMTOOL, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def judged(rule: str, document: Any, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs an alert's cases on the rules that it needs; all of them would take minutes."""
    wanted = {f"stepscope:{rule.replace('-', '_')}"}
    for group in document["groups"]:
        for each in reversed(group["rules"]):
            if each.get("record") in wanted or each.get("labels", {}).get("rule") == rule:
                wanted |= set(re.findall(r"stepscope:\w+", each["expr"]))
        group["rules"] = [
            each
            for each in group["rules"]
            if each.get("record") in wanted or "record" not in each
            if each.get("labels", {}).get("rule", rule) == rule
        ]
    (directory / "stepscope.rules.yml").write_text(yaml_text(document))
    (directory / "tests").mkdir()
    cases = directory / "tests" / "cases.yml"
    cases.write_text((TESTS / f"{rule}.yml").read_text())
    return promtool("test", "rules", cases)


@needs_promtool
def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", PROMETHEUS / "stepscope.rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.rule)
def test_an_alert_fires_where_it_should_and_only_there(alert: Any, tmp_path: Path) -> None:
    done = judged(alert.rule, rules_document(), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_whole_file_passes_too() -> None:
    done = promtool("test", "rules", TESTS / "worker-hang.yml", TESTS / "stepscope-drain-lag.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.rule)
def test_an_alert_is_tried_under_at_over_absent_and_on_a_look_alike(alert: Any) -> None:
    cases = yaml.safe_load((TESTS / f"{alert.rule}.yml").read_text())["tests"]
    tried = {re.split(r"[:,]| and ", case["name"])[0] for case in cases}
    assert set(KINDS) <= tried
    expected = [
        bool(moment.get("exp_alerts")) for case in cases for moment in case["alert_rule_test"]
    ]
    assert set(expected) == {True, False}


def test_no_file_of_cases_is_left_over() -> None:
    assert {path.stem for path in TESTS.iterdir()} == {alert.rule for alert in ALERTS}


CLAUSES = [
    (alert.rule, clause, changed)
    for alert in watched()
    for clause, changed in without_each(alert.expr)
]


@needs_promtool
@pytest.mark.parametrize(
    ("rule", "clause", "changed"), CLAUSES, ids=[f"{rule}: {part}" for rule, part, _ in CLAUSES]
)
def test_a_rule_without_one_of_its_conditions_fails_its_cases(
    rule: str, clause: str, changed: str, tmp_path: Path
) -> None:
    document = rules_document()
    record = f"stepscope:{rule.replace('-', '_')}"
    for each in document["groups"][0]["rules"]:
        if each.get("record") == record:
            each["expr"] = changed
    done = judged(rule, document, tmp_path)
    assert "parse error" not in done.stderr + done.stdout
    assert done.returncode != 0, f"no case needs {clause}"
