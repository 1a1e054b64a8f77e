"""What lies in deploy/prometheus is what the rules say, and every name in it exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from diagnose.alerts.alert import Alert, metrics_in
from diagnose.alerts.catalogue import ALERTS, NO_ALERT, RECORDS
from diagnose.alerts.export import generated
from diagnose.alerts.recorder import COLLECTOR_JOB, FINDING, RECORDER
from diagnose.alerts.rules_file import rules_document
from diagnose.alerts.runbooks import SECTIONS, runbooks, watched
from diagnose.rules import RULES
from diagnose.rules.from_metrics.decisions import DECISIONS
from telemetry.query.saved import saved_queries
from telemetry.sources.prometheus.names import CANONICAL
from tests.deploy.lines import load
from tests.diagnose.alerts.metric_names import (
    CONNECTOR,
    known,
    matched_labels,
    regrouped_labels,
    without_texts,
)

DEPLOY = Path(__file__).parents[3] / "deploy"
ALL = (*ALERTS.values(), FINDING.alert, *(each.alert for each in RECORDER))
EXPRESSIONS = {each.rule: each.expr for each in ALL} | RECORDS


@pytest.mark.parametrize("name", generated())
def test_a_committed_file_is_current(name: str) -> None:
    told = (DEPLOY / name).read_text(encoding="utf-8")
    assert told == generated()[name], "run: python -m diagnose.alerts"


def test_no_runbook_is_left_over() -> None:
    assert {page.name for page in (DEPLOY / "prometheus" / "runbooks").iterdir()} == set(runbooks())


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_series_of_a_rule_exists(name: str) -> None:
    unknown = set(metrics_in(EXPRESSIONS[name])) - set(known()) - set(RECORDS)
    assert not unknown


def labels_of(series: str) -> set[str]:
    """Returns the labels of a series; of a recorded one, those of what it is built from."""
    if series in RECORDS:
        return set().union(*(labels_of(each) for each in metrics_in(RECORDS[series])))
    return set(known().get(series, ()))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_label_of_a_rule_exists(name: str) -> None:
    expr = EXPRESSIONS[name]
    for series, labels in matched_labels(expr):
        assert labels <= known()[series], series
    of_its_series = {"sleep_state"} if "sleep_state" in expr else set()
    of_its_series |= set().union(*(labels_of(each) for each in metrics_in(expr)))
    assert regrouped_labels(expr) <= of_its_series


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_selected_label_was_seen(name: str) -> None:
    expr = EXPRESSIONS[name]
    assert len(matched_labels(expr)) == without_texts(expr).count("{")


@pytest.mark.parametrize("name", CONNECTOR)
def test_a_connectors_counter_is_one_that_imports_know(name: str) -> None:
    assert any(name in spellings for spellings in CANONICAL.values())


def test_a_name_that_does_not_exist_is_noticed() -> None:
    wrong = Alert(rule="x", expr='vllm:num_request_waiting{reson="capacity"} > 0')
    assert not set(wrong.metrics) <= set(known())
    assert matched_labels(wrong.expr) == [("vllm:num_request_waiting", {"reson"})]


def test_every_rule_has_an_alert_or_a_reason() -> None:
    assert set(ALERTS) | set(NO_ALERT) == set(RULES)
    assert all(why and not why.endswith(": ") for why in NO_ALERT.values())


def test_a_rule_that_judges_scrapes_and_has_no_alert_says_why() -> None:
    without = {rule for rule in DECISIONS if rule not in ALERTS}
    assert without == {
        "gpu-memory-overcommit-oom",
        "kv-pool-shrunk-by-reserve",
        "no-scheduler-fault",
        "request-exceeds-kv-capacity",
    }


def alerts_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for group in document["groups"] for each in group["rules"] if "alert" in each]


def test_a_summary_is_constant_and_a_description_has_its_number_and_place() -> None:
    for each in alerts_in(rules_document()):
        assert "{{" not in each["annotations"]["summary"]
        assert "{{ $labels.instance }}" in each["annotations"]["description"]
    for alert in watched():
        assert "{{ $value" in alert.description


def test_every_alert_names_its_rule_and_severity() -> None:
    for each in alerts_in(rules_document()):
        if each["alert"] != FINDING.alert.name:  # it keeps the finding's own
            assert set(each["labels"]) == {"rule", "severity"}


def test_what_silences_a_rule_silences_its_alert() -> None:
    expressions = {each["alert"]: each["expr"] for each in alerts_in(rules_document())}
    for alert in watched():
        for other in RULES[alert.rule].silenced_by:
            if other in ALERTS:
                assert f"unless {ALERTS[other].record}" in expressions[alert.name]


def test_a_guard_alerts_nobody() -> None:
    assert {alert.rule for alert in ALERTS.values()} - {alert.rule for alert in watched()} == {
        "guard-light-preemption"
    }


def test_max_num_seqs_is_written_for_whoever_says_it() -> None:
    first = rules_document(max_num_seqs=256)["groups"][0]["rules"][0]
    assert first == {
        "record": "stepscope:max_num_seqs",
        "expr": "vllm:num_requests_running * 0 + 256",
    }
    assert "max_num_seqs * 0" not in str(rules_document())


def test_an_address_makes_links_of_runbooks() -> None:
    (first, *_) = alerts_in(rules_document(runbooks="https://runbooks.example"))
    assert first["annotations"]["runbook_url"].startswith("https://runbooks.example/")


@pytest.mark.parametrize("name", sorted(set(runbooks()) - {"README.md"}))
def test_a_runbook_has_every_section(name: str) -> None:
    headings = re.findall(r"^## (.*)$", runbooks()[name], re.MULTILINE)
    assert tuple(headings) == SECTIONS


def test_every_query_of_a_runbook_is_saved() -> None:
    named = set(re.findall(r"stepscope query ([a-z-]+)", "".join(runbooks().values())))
    assert named <= set(saved_queries())


def test_the_collectors_job_is_that_of_the_configuration() -> None:
    jobs = [job["job_name"] for job in load("prometheus.yml")["scrape_configs"]]
    assert COLLECTOR_JOB in jobs
