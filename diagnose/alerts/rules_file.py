"""Writes the rules as Prometheus loads them.

One group judges the engines: first what is recorded, then the alerts on it, evaluated in that order
at one moment, so that `unless` compares the same instant. The second group reads the collector's
page.
"""

from __future__ import annotations

from typing import Any

from diagnose.alerts.alert import Alert
from diagnose.alerts.catalogue import ALERTS, RECORDS, silencers
from diagnose.alerts.recorder import FINDING, RECORDER
from diagnose.alerts.yaml_text import Block, yaml_text

HEAD = """\
# Written by `stepscope rules export`: change the rules, not this file.
# Loaded by deploy/prometheus.yml; each alert has a page in runbooks/.
"""
RUNBOOKS = "deploy/prometheus/runbooks"
"""Where runbooks lie; an address instead makes links of it."""
INTERVAL = "15s"


def rules_document(
    *, runbooks: str = RUNBOOKS, max_num_seqs: int | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Returns the groups of rules.

    Args:
        runbooks: what stands before the name of a runbook.
        max_num_seqs: the setting of all engines; without it the two alerts that compare with it
            wait for a recording rule of this name from elsewhere.
    """
    setting = []
    if max_num_seqs is not None:
        expr = f"vllm:num_requests_running * 0 + {max_num_seqs}"
        setting = [{"record": "stepscope:max_num_seqs", "expr": expr}]
    records = [{"record": name, "expr": _expr(expr)} for name, expr in RECORDS.items()]
    conditions = [{"record": each.record, "expr": _expr(each.expr)} for each in ALERTS.values()]
    alerts = [
        _alert(each, _unless(each), runbooks)
        for each in ALERTS.values()
        if each.summary is not None
    ]
    health = [_alert(each.alert, each.alert.expr, runbooks) for each in (FINDING, *RECORDER)]
    return {
        "groups": [
            {
                "name": "stepscope-engines",
                "interval": INTERVAL,
                "rules": setting + records + conditions + alerts,
            },
            {"name": "stepscope-recorder", "interval": INTERVAL, "rules": health},
        ]
    }


def rules_text(*, runbooks: str = RUNBOOKS, max_num_seqs: int | None = None) -> str:
    """Returns the file."""
    return HEAD + yaml_text(rules_document(runbooks=runbooks, max_num_seqs=max_num_seqs))


def _expr(text: str) -> str:
    text = text.strip("\n")
    return Block(f"{text}\n") if "\n" in text else text


def _unless(alert: Alert) -> str:
    """Returns what alerts: the condition, unless one that explains it holds as well."""
    others = [f"\n  unless {other.record}" for other in silencers(alert)]
    return alert.record + "".join(others)


def _alert(alert: Alert, expr: str, runbooks: str) -> dict[str, Any]:
    labels = {"severity": alert.severity.name, "rule": alert.rule}
    if alert is FINDING.alert:
        labels = {}  # the finding's own
    return {
        "alert": alert.name,
        "expr": _expr(expr),
        "for": alert.hold,
        **({"labels": labels} if labels else {}),
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks}/{alert.rule}.md",
        },
    }
