"""A notice as a line for people, at most 100 columns wide."""

from __future__ import annotations

from diagnose.life.listing import ended_words
from diagnose.life.state import StoredChange
from diagnose.text.lines import SHAPES, WIDTH, Report, Role
from diagnose.watch.news import Notice
from diagnose.words import duration, engine_hex, harmless, plural, time_of_day

_RULE = 22
"""Columns of a rule's name; a longer one pushes the rest to the right."""


def write_notice(report: Report, notice: Notice, *, names_engine: bool) -> None:
    """Adds a line: when it was so, what happened to which finding, and its number."""
    mark, role = SHAPES[notice.severity], notice.severity.name
    if notice.kind == "cleared":
        mark, role = "✓", "healthy"
    if notice.kind == "ended":
        mark, role = "●", "muted"
    engine = f"{engine_hex(notice.state.engine)[:8]}  " if names_engine else ""
    told: Role = role  # type: ignore[assignment]
    _write(
        report,
        _moment(notice),
        mark,
        notice.kind,
        told,
        notice.state.rule,
        engine + summary(notice),
    )


def write_saying(report: Report, change: StoredChange) -> None:
    """Adds a line: who said what of a finding."""
    note = "" if not change.note else f": {harmless(change.note, 200)}"
    place = change.rule or "every rule"
    what = f"by {harmless(change.author)}{note}"
    _write(report, change.ts, "●", change.event, "muted", harmless(place, 60), what)


def _write(report: Report, ts: int, mark: str, word: str, role: Role, rule: str, what: str) -> None:
    lead = f"{time_of_day(ts)}  "
    head = f"{mark} {word.upper():<8} "
    name = f"{rule:<{_RULE}}  "
    report.add(
        lead, (head, role), (name, "strong"), harmless(what, WIDTH - len(lead + head + name))
    )


def _moment(notice: Notice) -> int:
    """Returns when it was so, where that is not when it is told."""
    if notice.is_end and notice.cleared_ts is not None:
        return notice.cleared_ts
    if notice.kind == "ended" and notice.state.ended_ts is not None:
        return notice.state.ended_ts
    return notice.opened_ts if notice.kind in ("opened", "reopened", "open") else notice.ts


def summary(notice: Notice) -> str:
    """Returns what a notice says, in a sentence or two."""
    if notice.kind == "ended":
        return f"{ended_words(notice.state)}, {_end(notice)}"
    if notice.is_end:
        return _end(notice)
    if notice.kind == "explained":
        return f"shares: {notice.reason}"
    if notice.kind in ("updated", "flapping", "settled") and notice.reason:
        return f"{notice.reason}. {notice.sentence}"
    if notice.kind == "reopened":
        return f"opening {notice.num_openings}. {notice.sentence}"
    return notice.sentence


def _end(notice: Notice) -> str:
    """Returns how long it lasted and what it cost."""
    until = notice.cleared_ts or notice.state.ended_ts or notice.opened_ts
    lasted = duration(max(until - notice.opened_ts, 0))
    document = notice.state.document
    cost = [str(line) for line in (document.get("impact") or {}).get("cost") or ()]
    num = document.get("num_affected_requests")
    hit = [plural(num, "request")] if isinstance(num, int) and num else []
    reason = [notice.reason] if notice.reason and notice.kind == "cleared" else []
    return ", ".join([lasted, *reason, *hit, *cost])
