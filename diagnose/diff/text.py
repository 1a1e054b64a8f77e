"""A comparison as text for people, at most 100 columns wide: the answer, then the numbers."""

from __future__ import annotations

import json
from typing import Any

from diagnose.diff.comparison import GROUPS, Diff, FindingChange, Quantity
from diagnose.diff.noise import METHOD
from diagnose.diff.side import Side
from diagnose.diff.words import (
    FATES,
    LEGEND,
    SIGNS,
    cautions,
    change_of,
    counts_of,
    extent_of,
    headline,
    name_of,
    of_one_side,
    shown,
)
from diagnose.finding import NO_FAULT
from diagnose.text.lines import SHAPES, WIDTH, Report, Role
from diagnose.words import NOT_MEASURED, harmless

_LABEL = 12
_NAME = 45


def write_diff(diff: Diff) -> Report:
    """Returns the report of a comparison."""
    report = Report()
    for side in (diff.a, diff.b):
        _header(report, side)
    report.add()
    report.wrapped(headline(diff), 2, "strong")
    for said in cautions(diff):
        report.wrapped(said, 4, "high", "  ▲ ")
    report.add()
    for side in (diff.a, diff.b):
        _verdict(report, side)
    _findings(report, diff)
    _settings(report, diff)
    _quantities(report, diff)
    return report


def _header(report: Report, side: Side) -> None:
    name, extent = f"{side.name}  {name_of(side)}", extent_of(side)
    if len(name) + len(extent) + 2 <= WIDTH:
        report.add((name, "strong"), f"  {extent}")
        return
    report.add((name, "strong"))
    report.wrapped(extent, 3)


def _verdict(report: Report, side: Side) -> None:
    verdict = side.diagnosis.verdict
    sign, role = _sign(side)
    report.add((f"  verdict {side.name}".ljust(_LABEL), "muted"), (f"{sign} ", role), verdict.rule)
    report.wrapped(verdict.sentence, _LABEL)


def _sign(side: Side) -> tuple[str, Role]:
    severity = side.diagnosis.verdict.severity
    if severity is not None:
        return SHAPES[severity], severity.name  # type: ignore[return-value]
    if side.diagnosis.verdict.rule == NO_FAULT:
        return "✓", "healthy"
    return NOT_MEASURED, "muted"


def _findings(report: Report, diff: Diff) -> None:
    if not diff.findings:
        return
    report.add()
    report.add(("  findings", "muted"))
    for change in diff.findings:
        _finding(report, change)


def _finding(report: Report, change: FindingChange) -> None:
    found = change.b or change.a
    sign, role = ("", "plain") if found is None else (SHAPES[found.severity], found.severity.name)
    head = f"    {FATES[change.fate].ljust(16)}"
    report.add(head, (f"{sign} ", role), (change.rule, "strong"))  # type: ignore[arg-type]
    for name, finding in (("A", change.a), ("B", change.b)):
        if finding is not None:
            report.wrapped(f"{name}: {finding.sentence}", 22, "muted")
    if change.why:
        report.wrapped(change.why, 22, "muted")


def _settings(report: Report, diff: Diff) -> None:
    report.add()
    if not diff.settings:
        report.add(("  settings    ", "muted"), "none differs of those that both sides tell")
    else:
        report.add(("  settings that differ", "muted"))
    for setting in diff.settings:
        label = f"    {harmless(setting.name, 40)}".ljust(46)
        told = f"{setting_text(setting.old)} -> {setting_text(setting.new)}"
        report.wrapped(told, 46, label=label, label_role="plain")
    if diff.settings_of_one_side:
        report.wrapped(of_one_side(diff), 4, "muted")


def setting_text(value: Any) -> str:
    """Returns a setting as it may be printed; a dash where it is not set or not told."""
    if value is None:
        return NOT_MEASURED
    return harmless(value if isinstance(value, str) else json.dumps(value), 60)


def _quantities(report: Report, diff: Diff) -> None:
    for group in GROUPS:
        own = [quantity for quantity in diff.quantities if quantity.group == group]
        if own:
            report.add()
            head = f"  {group}".ljust(_NAME) + "A".rjust(11) + "B".rjust(11) + "change".rjust(11)
            report.add((head + "n of A / B".rjust(20), "muted"))
        for quantity in own:
            _quantity(report, quantity)
    if diff.quantities:
        report.add()
        report.add((f"  {LEGEND}", "muted"))
        report.wrapped(METHOD, 2, "muted")


def _quantity(report: Report, quantity: Quantity) -> None:
    beyond = quantity.outcome == "beyond_noise"
    values = "".join(shown(value, quantity.unit).rjust(11) for value in (quantity.a, quantity.b))
    name = harmless(quantity.name, _NAME - 5).ljust(_NAME - 4)
    report.add(
        "  ",
        (SIGNS[quantity.outcome], "high" if beyond else "muted"),
        (f" {name}", "strong" if beyond else "plain"),
        values,
        change_of(quantity).rjust(11),
        (counts_of(quantity).rjust(20), "muted"),
    )
