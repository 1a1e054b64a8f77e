"""Incidents as Prometheus would have seen them: no look-alike alerts, many of them are found."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from diagnose.alerts.runbooks import watched
from tests.cases import CASES, TOOL, read_cases, write_scrapes
from tests.diagnose.alerts.test_promtool import PROMETHEUS, needs_promtool, promtool

MIN_FOUND = 13
"""Of the incidents. Many were sampled more coarsely than an alert's window is long, or have a cause
that no metric tells."""
RULES = {alert.name: alert.rule for alert in watched()}

pytestmark = [
    needs_promtool,
    pytest.mark.skipif(not (CASES.exists() and TOOL.exists()), reason=f"no incidents at {CASES}"),
]


def series_of(case: dict[str, Any], directory: Path) -> dict[str, list[str]]:
    """Returns the values of each series of a case's pages, with max_num_seqs where it is known."""
    write_scrapes(case, directory)
    pages = sorted(directory.glob("*.prom"))
    found: dict[str, list[str]] = defaultdict(lambda: ["_"] * len(pages))
    for number, page in enumerate(pages):
        for family in text_string_to_metric_families(page.read_text()):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
                found[f'{sample.name}{{instance="a",{labels}}}'][number] = repr(sample.value)
    if slots := case["signals"].get("config", {}).get("max_num_seqs"):
        labels = 'instance="a",engine="0",model_name="case"'
        found[f"stepscope:max_num_seqs{{{labels}}}"] = [str(slots)] * len(pages)
    return found


def alerting(case: dict[str, Any], directory: Path) -> set[str]:
    """Returns the rules that alert at any sample of a case, or would if it lasted."""
    series, interval = series_of(case, directory / "pages"), int(case["signals"]["interval_s"])
    num = max(len(values) for values in series.values())
    asked = [
        {"expr": "count by (alertname) (ALERTS)", "eval_time": f"{number * interval}s"}
        for number in range(1, num)
    ]
    document = {
        "rule_files": [str(PROMETHEUS / "stepscope.rules.yml")],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": f"{interval}s",
                "input_series": [
                    {"series": name, "values": " ".join(values)} for name, values in series.items()
                ],
                "promql_expr_test": asked,
            }
        ],
    }
    file = directory / "case.yml"
    file.write_text(json.dumps(document))
    done = promtool("test", "rules", file)
    assert "error" not in done.stderr.lower(), done.stderr
    names = re.findall(r'alertname="(\w+)"', done.stdout + done.stderr)
    return {RULES[name] for name in names}


def test_no_incident_alerts_for_what_it_must_not_and_many_for_what_they_are(
    tmp_path: Path,
) -> None:
    found, false = [], []
    for case in read_cases(CASES):
        (tmp_path / case["id"]).mkdir()
        rules = alerting(case, tmp_path / case["id"])
        false += [(case["id"], rule) for rule in rules & set(case["must_not_fire"])]
        found += [case["id"]] * bool(rules & set(case["expected_rules"]))
    assert not false
    assert len(found) >= MIN_FOUND, found
