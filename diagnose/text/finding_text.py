"""One finding as text: the answer, its cause, what it cost, why it is believed, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.accounting import Accounting
from diagnose.finding import Evidence, Finding, Link, Rejected, Share
from diagnose.text.effects_text import write_effects
from diagnose.text.lines import SHAPES, WIDTH, Report, Role
from diagnose.text.metric_report import account_line
from diagnose.words import (
    NOT_MEASURED,
    duration,
    number_of,
    plural,
    time_of_day,
)

_LABEL = 12
"""Columns of a label inside a finding."""
_TIME = 12
"""Columns of a time of day in a chain."""
_ACTION = 44
"""Columns of a flag with its values."""
PREEMPTION_RULES = ("kv-preemption-pressure", "kv-preemption-thrash", "guard-light-preemption")


def write_finding(
    report: Report, finding: Finding, accounting: Accounting, said: Sequence[str] = ()
) -> None:
    """Adds a finding: head, sentence, cause, cost, evidence, what was rejected, what to do.

    `said` is what people said of it.
    """
    _head(report, finding, accounting.scope.end_ts, said)
    report.add()
    _body(report, finding, accounting)


def write_silenced(report: Report, finding: Finding, end_ts: int, said: Sequence[str]) -> None:
    """Adds a finding that nobody is to be told of: that it is there, and who silenced it."""
    _head(report, finding, end_ts, said)


def _head(report: Report, finding: Finding, end_ts: int, said: Sequence[str]) -> None:
    role: Role = finding.severity.name  # type: ignore[assignment]
    head = f"{SHAPES[finding.severity]} {finding.severity.name.upper()}"
    title = f"  {finding.rule}"
    when = when_of(finding, end_ts)
    gap = " " * max(2, 95 - len(head) - len(title) - len(when))
    report.add((head, role), (title, "strong"), (gap + when, "muted"))
    report.wrapped(finding.sentence, 2, "strong")
    for line in said:
        report.wrapped(line, 2, "flag")


def _body(report: Report, finding: Finding, accounting: Accounting) -> None:
    cause = f"{finding.cause.sentence} (confidence {finding.confidence.level}: "
    report.wrapped(f"{cause}{finding.confidence.why})", _LABEL, label="  cause")
    if finding.shares:
        report.wrapped(told_shares(finding), _LABEL, label="  shares")
    if finding.chain:
        _chain(report, finding.chain)
    if finding.rule in PREEMPTION_RULES:
        _account(report, accounting)
    for number, line in enumerate(finding.impact.cost):
        report.wrapped(line, _LABEL, "cost" if number == 0 else "plain", _first(number, "cost"))
    for number, line in enumerate(finding.impact.users):
        report.wrapped(line, _LABEL, label=_first(number, "users"))
    report.add()
    _evidence(report, finding.evidence)
    _rejected(report, finding.rejected)
    for missing in finding.missing:
        report.wrapped(missing, _LABEL, label="  missing")
    _actions(report, finding)


def _first(number: int, label: str) -> str:
    return f"  {label}" if number == 0 else ""


def when_of(finding: Finding, end_ts: int) -> str:
    """Returns whether it is open or cleared, since when and how long."""
    opened, cleared = finding.span.opened_ts, finding.span.cleared_ts
    if cleared is None:
        return f"open since {time_of_day(opened)}, {duration(max(end_ts - opened, 0))}"
    return f"cleared {time_of_day(cleared)} after {duration(cleared - opened)}"


def shares_line(shares: tuple[Share, ...]) -> str:
    """Returns what each change accounts for, largest first, of how many."""
    total = round(sum(share.num for share in shares))
    parts = [f"{share.name} {round(100 * share.ratio)} %" for share in shares]
    return f"{', '.join(parts)} of {total:,}"


def told_shares(finding: Finding) -> str:
    """Returns a finding's shares in a line; of stored ones also until when they were worked out."""
    told = shares_line(finding.shares)
    if finding.shared_ts is None:
        return told
    return f"{told} (stored by the analyst, until {time_of_day(finding.shared_ts)})"


def _chain(report: Report, chain: tuple[Link, ...]) -> None:
    """Adds how it came about, each step with its time; the cause by its name alone."""
    for number, link in enumerate(chain):
        said = link.sentence.split(":")[0] if link.stage == "cause" else link.sentence
        when = "" if link.ts is None else time_of_day(link.ts)
        report.wrapped(said, _LABEL + _TIME, label=_first(number, "chain").ljust(_LABEL) + when)


def _account(report: Report, account: Accounting) -> None:
    if not account.is_recorded:
        report.add(("  account".ljust(_LABEL), "muted"), (account_line(account), "cause"))
        return
    total = account.num_rows if account.counter is None else account.counter
    parts = [
        (f"{account.num_kv_full:,} kv_full", "cause"),
        (f"{account.num_priority:,} priority", "plain"),
        (f"{account.num_cache_reset:,} cache_reset", "plain"),
    ]
    if account.num_cause_unknown:
        parts.append((f"{account.num_cause_unknown:,} of unrecorded cause", "plain"))
    if account.unattributed is not None:
        parts.append((f"{account.unattributed:,} unattributed", "plain"))
    pieces: list[tuple[str, Role]] = [
        ("  account".ljust(_LABEL), "muted"),
        (f"{plural(total, 'preemption')} = ", "plain"),
    ]
    for number, (text, role) in enumerate(parts):
        pieces.append((" + " if number else "", "plain"))
        pieces.append((text, role))  # type: ignore[arg-type]
    report.add(*pieces)
    _counter(report, account)
    if account.loss.identity_holds is False:
        report.add(" " * _LABEL, ("▲ the lost tokens do not add up", "high"))


def _counter(report: Report, account: Accounting) -> None:
    lead = " " * _LABEL
    missing = account.unattributed
    if missing is None:
        report.add(lead, (f"{NOT_MEASURED} the engine's own counter is not recorded", "muted"))
    elif missing == 0:
        report.add(lead, ("✓ ", "healthy"), f"equals the engine's own counter, {account.counter:,}")
    elif missing > 0:
        text = f"{missing:,} unattributed: the engine counted {account.counter:,}, "
        report.add(lead, ("▲ ", "high"), f"{text}{account.num_rows:,} are recorded")
    else:
        text = f"{-missing:,} more recorded than the engine's own counter, {account.counter:,}"
        report.add(lead, ("▲ ", "high"), text)


def _evidence(report: Report, evidence: tuple[Evidence, ...]) -> None:
    if not evidence:
        return
    report.add(("  evidence".ljust(58) + "value".rjust(10) + "threshold".rjust(14), "muted"))
    for item in evidence:
        name = item.name if len(item.name) <= 54 else item.name[:53] + "…"
        value, threshold = number_of(item.value, item.unit), threshold_of(item)
        line = "    " + name.ljust(54) + value.rjust(10) + threshold.rjust(14)
        report.add(line, (f"   {item.provenance}", "muted"))


def threshold_of(item: Evidence) -> str:
    """Returns what a value was judged against, or a dash."""
    if item.threshold_text is not None:
        return item.threshold_text
    return number_of(item.threshold, item.unit, short=True)


def _rejected(report: Report, rejected: tuple[Rejected, ...]) -> None:
    if not rejected:
        return
    report.add(("  rejected", "muted"))
    names = max(len(item.name) for item in rejected) + 2
    cells = [f"{item.name.ljust(names)}{item.number}" for item in rejected]
    half = (len(cells) + 1) // 2
    left, right = cells[:half], [*cells[half:], ""]
    width = max(len(cell) for cell in left) + 3
    if any(4 + width + len(cell) > WIDTH for cell in right):
        for cell in cells:
            report.wrapped(cell, 4)
        return
    for one, other in zip(left, right, strict=False):
        report.add("    " + one.ljust(width) + other)


def _actions(report: Report, finding: Finding) -> None:
    actions = finding.actions
    if not actions:
        return
    report.add()
    one = len(actions) == 1
    report.add(("  do this" if one else "  do one of these", "muted"))
    for action in actions:
        if action.flag is None:
            report.wrapped(action.what, 4)
        else:
            flag = f"    {action.flag} {action.old} -> {action.new}"
            report.wrapped(action.what, _ACTION, label=flag, label_role="flag")
        report.wrapped(f"price: {action.trade_off}", _ACTION, "muted")
    if all(action.flag is not None and action.applies == "restart" for action in actions):
        report.add((f"  {'It needs' if one else 'Each needs'} a restart.", "muted"))
    write_effects(report, finding)
    report.add((f"  verify: {actions[0].verify}", "muted"))
    reverts = list(dict.fromkeys(action.revert for action in actions))
    report.flow(reverts, 10, "  revert:", "muted")
