"""Writes a page for whoever was woken: one for each alert, made from the page of its rule.

An alert is a symptom and these pages say so: each leads to `stepscope diagnose`, which has the
cause where the steps are recorded.
"""

from __future__ import annotations

from diagnose.alerts.alert import SETTING_MAX_NUM_SEQS, Alert
from diagnose.alerts.catalogue import ALERTS, NO_ALERT, RECORDS, silencers
from diagnose.alerts.recorder import FINDING, RECORDER, Health
from diagnose.pages import from_scrapes
from diagnose.rules import RULES

SECTIONS = (
    "What it means",
    "How to confirm",
    "What to do",
    "When it is a false alarm",
    "How to verify that it is over",
)
"""Headings of every runbook, in this order."""


def runbooks() -> dict[str, str]:
    """Returns the text of every page by its file's name, the list of all among them."""
    pages = {f"{alert.rule}.md": _of_rule(alert) for alert in watched()}
    pages |= {f"{each.alert.rule}.md": _of_health(each) for each in (FINDING, *RECORDER)}
    return pages | {"README.md": _contents()}


def watched() -> tuple[Alert, ...]:
    """Returns the alerts of rules; guards are none."""
    return tuple(alert for alert in ALERTS.values() if alert.summary is not None)


def _of_rule(alert: Alert) -> str:
    rule = RULES[alert.rule]
    sections = rule.sections()
    summary = sections[""].split(": ", 1)[1]
    return _page(
        alert,
        (
            f"{summary[:1].upper()}{summary[1:]} {sections['Why it matters']}\n\n"
            f"**From metrics:** {from_scrapes(rule)}\n\n"
            f"**From recorded steps:** {sections['What it measures']}",
            _confirm(alert),
            sections["What to do"],
            _false_alarm(alert, sections["When it stays quiet"]),
            _verify(alert),
        ),
    )


def _of_health(health: Health) -> str:
    asked = "\n".join(health.confirm)
    return _page(
        health.alert,
        (
            health.meaning,
            f"{_promql(health.alert.expr)}\n\n{_code(asked)}",
            health.to_do,
            health.false_alarm,
            f"{health.verify}",
        ),
    )


def _page(alert: Alert, texts: tuple[str, ...]) -> str:
    severity = "as its finding" if alert is FINDING.alert else alert.severity.name
    told = f"Severity {severity}, after it was so for {alert.hold}. Needs {_names(alert)}."
    lines = [f"# {alert.name}", "", f"{alert.summary}.", "", told]
    for heading, text in zip(SECTIONS, texts, strict=True):
        lines += ["", f"## {heading}", "", text.strip()]
    return "\n".join(lines) + "\n"


def _names(alert: Alert) -> str:
    return ", ".join(f"`{name}`" for name in _measured(alert))


def _measured(alert: Alert) -> tuple[str, ...]:
    """Returns the series of pages that an alert needs, those behind recorded series among them."""
    names: set[str] = set()
    for name in alert.metrics:
        if name in RECORDS:
            names |= set(_measured(Alert(rule=alert.rule, expr=RECORDS[name])))
        else:
            names.add(name)
    return tuple(sorted(names))


def _confirm(alert: Alert) -> str:
    built_from = [name for name in alert.metrics if name in RECORDS]
    asked = "\n\n".join(
        [_promql(alert.expr), *(_promql(RECORDS[each], each) for each in built_from)]
    )
    setting = ""
    if SETTING_MAX_NUM_SEQS in alert.metrics:
        setting = (
            "\n\nNo page tells `max_num_seqs`: without a recording rule for it "
            "(`stepscope rules export --max-num-seqs N`) this alert never fires."
        )
    queries = "\n".join(f"stepscope query {name}" for name in alert.queries)
    return (
        f"{asked}{setting}\n\nThen the cause, which no metric tells, and what it costs:\n\n"
        f"{_code('stepscope diagnose --since 15m')}\n\n"
        f"And in SQL over the log, recorded or imported from scrapes:\n\n{_code(queries)}"
    )


def _false_alarm(alert: Alert, quiet: str) -> str:
    others = silencers(alert)
    if not others:
        return quiet
    names = ", ".join(f"`{other.rule}`" for other in others)
    return f"{quiet}\n\nThe alert is silent while {names} holds."


def _verify(alert: Alert) -> str:
    return (
        f"`{alert.record}` gives nothing for longer than {alert.hold}, while the series that it "
        "needs are still there, and\n\n"
        f"{_code('stepscope diagnose --since 10m')}\n\n"
        f"lists `{alert.rule}` under what is well. A gap in the scrapes ends an alert too: "
        "that is no proof."
    )


def _promql(expr: str, name: str | None = None) -> str:
    told = "" if name is None else f"where `{name}` is\n\n"
    return f"{told}{_code(expr.strip(), 'promql')}"


def _code(text: str, language: str = "") -> str:
    return f"```{language}\n{text}\n```"


def _contents() -> str:
    rows = [
        f"| [{alert.name}]({alert.rule}.md) | {_severity(alert)} | {alert.summary} |"
        for alert in (*watched(), FINDING.alert, *(each.alert for each in RECORDER))
    ]
    others = [f"| `{rule}` | {why} |" for rule, why in NO_ALERT.items()]
    return "\n".join(
        [
            "# Runbooks",
            "",
            "One page an alert. Written by `stepscope rules export`.",
            "",
            "| alert | severity | what it says |",
            "|---|---|---|",
            *rows,
            "",
            "## Rules without an alert of their own",
            "",
            "`StepscopeFindingActive` fires for what the recorder finds with any of them.",
            "",
            "| rule | why |",
            "|---|---|",
            *others,
            "",
        ]
    )


def _severity(alert: Alert) -> str:
    return "the finding's" if alert is FINDING.alert else alert.severity.name
