"""Stored findings as text and JSON: what stands, who said what of it, and one finding's story."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from diagnose.life.ends import end_words
from diagnose.life.shares import shares_words
from diagnose.life.state import FindingState, Silence, StoredChange
from diagnose.text.lines import SHAPES, Report, Role
from diagnose.words import duration, engine_hex, harmless, iso, plural, time_of_day, utc

SCHEMA_VERSION = 1
_INDENT = 10


def json_listing(
    states: Sequence[FindingState],
    silences: Sequence[Silence],
    now: int,
    story: Sequence[StoredChange] | None = None,
) -> str:
    """Returns findings, silences in force and, of one finding, its changes, as JSON.

    Its shape is published: `docs/findings.schema.json`.
    """
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "findings": [state_document(state, now) for state in states],
        "silences": [_plain(asdict(silence)) for silence in silences],
    }
    if story is not None:
        document["changes"] = [_plain(asdict(change)) for change in story]
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False)


def state_document(state: FindingState, now: int) -> dict[str, Any]:
    """Returns a finding's state; `document` is the whole finding, as `diagnose --json` tells it."""
    plain = _plain(asdict(state))
    del plain["body"]
    return plain | {
        "is_open": state.is_open,
        "is_silenced": state.is_silenced(now),
        "is_muted": state.is_muted(now),
        "shares": state.shares,
        "document": state.document,
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Returns values that JSON keeps: an engine as hex digits, each moment as text as well."""
    moments = {
        name.removesuffix("_ts"): None if value is None else iso(value)
        for name, value in values.items()
        if name.endswith("_ts")
    }
    engine, severity = values["engine"], values.get("severity")
    named = {} if severity is None else {"severity": severity.name}
    return values | moments | named | {"engine": None if engine is None else engine_hex(engine)}


# ------------------------------------------------------------------------------------------- text


def write_listing(
    states: Sequence[FindingState],
    silences: Sequence[Silence],
    now: int,
    *,
    hidden: Sequence[FindingState] = (),
) -> Report:
    """Returns the findings, those that somebody has to look at first.

    Of those that are `hidden` it says how many there are.
    """
    report = Report()
    for state in sorted(states, key=lambda state: (state.rank, state.is_muted(now))):
        _write_state(report, state, now)
    if not states:
        report.add(("✓ nothing is open", "healthy"))
        report.add()
    _write_silences(report, silences, now)
    if told := _hidden(hidden):
        report.add(f"{told}: stepscope findings --all")
    if any(state.is_open and not state.is_muted(now) for state in states):
        report.add("known: stepscope ack ID --note ...    not now: stepscope silence ID --for 2h")
    return report


def _hidden(states: Sequence[FindingState]) -> str:
    """Returns how many are over, and how."""
    num_ended = sum(state.status == "ended" for state in states)
    num_cleared = len(states) - num_ended
    parts = [f"{plural(num_cleared, 'finding')} cleared"] if num_cleared else []
    if num_ended:
        parts.append(f"{plural(num_ended, 'finding')} open when the engine ended")
    return ", ".join(parts)


def _write_state(report: Report, state: FindingState, now: int) -> None:
    mark, role = _mark(state)
    word = state.status.upper() if state.status != "open" else state.severity.name.upper()
    head = f"{mark} {word}"
    report.add(
        (head.ljust(_INDENT), role),
        (f"  {state.finding}  ", "plain"),
        (state.rule, "strong"),
        (f"  {_when(state, now)}", "muted"),
    )
    if state.status == "ended":
        report.wrapped(ended_words(state), _INDENT + 2, "muted")
    report.wrapped(state.sentence or "", _INDENT + 2)
    if words := shares_words(state.shares):
        report.wrapped(harmless(words, 400), _INDENT + 10, "cost", " " * (_INDENT + 2) + "shares")
    facts = [f"engine {engine_hex(state.engine)}", f"opened {_times(state.num_openings)}"]
    report.add((" " * (_INDENT + 2) + ", ".join([*facts, *_reason(state)]), "muted"))
    for line in _said(state, now):
        report.wrapped(line, _INDENT + 2, "flag")
    report.add()


def _mark(state: FindingState) -> tuple[str, Role]:
    if state.status == "ended":
        return SHAPES[state.severity], "muted"
    if not state.is_open:
        return "✓", "healthy"
    role: Role = state.severity.name  # type: ignore[assignment]
    return SHAPES[state.severity], role


def _times(num: int) -> str:
    return "once" if num == 1 else f"{num:,} times"


def _reason(state: FindingState) -> list[str]:
    if not state.reason or state.event in ("explained", "ended"):  # it is told already
        return []
    return [f"{state.event}: {harmless(state.reason, 80)}"]


def _when(state: FindingState, now: int) -> str:
    opened = f"{utc(state.opened_ts):%Y-%m-%d} {time_of_day(state.opened_ts)}"
    if state.status == "ended":
        return f"opened {opened} UTC"
    if state.cleared_ts is None:
        return f"open since {opened} UTC, {duration(max(now - state.opened_ts, 0))}"
    lasted = duration(state.cleared_ts - state.opened_ts)
    return f"opened {opened} UTC, cleared after {lasted}"


def ended_words(state: FindingState) -> str:
    """Returns that the record ended while a finding was open, when and how."""
    if state.ended_ts is None:
        return "open when the record ended"
    words = f"open when the record ended at {time_of_day(state.ended_ts)}"
    is_known = state.ended_by is not None and state.ended_by.startswith("engine_")
    return f"{words}: {end_words(state.ended_by)}" if is_known else words


def _said(state: FindingState, now: int) -> list[str]:
    lines = []
    if state.acknowledged_ts is not None:
        by, note = state.acknowledged_by, state.acknowledged_note
        lines.append(acknowledged_words(by, state.acknowledged_ts, note))
    if state.is_silenced(now):
        by, note = state.silenced_by, state.silenced_note
        lines.append(silenced_words(by, state.silenced_until_ts or now, note))
    return lines


def acknowledged_words(by: str | None, ts: int, note: str | None) -> str:
    """Returns who knows of a finding, since when and why."""
    return f"acknowledged by {harmless(by)} at {day_and_time(ts)}{_noted(note)}"


def silenced_words(by: str | None, until_ts: int, note: str | None) -> str:
    """Returns who silenced a finding, until when and why."""
    return f"silenced by {harmless(by)} until {day_and_time(until_ts)}{_noted(note)}"


def day_and_time(ts: int) -> str:
    """Returns a moment: `2026-11-30 14:00:00 UTC`."""
    return f"{utc(ts):%Y-%m-%d} {time_of_day(ts, 0)} UTC"


def _noted(note: str | None) -> str:
    return "" if not note else f": {harmless(note, 300)}"


def _write_silences(report: Report, silences: Sequence[Silence], now: int) -> None:
    for silence in silences:
        rule = "every rule" if silence.rule is None else harmless(silence.rule)
        engine = "" if silence.engine is None else f" of engine {engine_hex(silence.engine)}"
        left, note = duration(silence.until_ts - now), _noted(silence.note)
        by = harmless(silence.author)
        report.wrapped(f"silenced  {rule}{engine} by {by} for another {left}{note}", 2, "muted")
    if silences:
        report.add()


def write_story(state: FindingState, changes: Sequence[StoredChange], now: int) -> Report:
    """Returns one finding and all that happened to it."""
    report = Report()
    _write_state(report, state, now)
    day = ""
    for change in changes:
        if (today := f"{utc(change.ts):%Y-%m-%d}") != day:
            report.add((f"{today} UTC", "muted"))
            day = today
        report.add(f"  {time_of_day(change.ts)}  {change.event:<13}", (_told(change), "muted"))
    return report


def _told(change: StoredChange) -> str:
    if change.status is None:  # a person said so; whose name a bundle may not hold
        return f"by {harmless(change.author)}{_noted(change.note)}"
    severity = "" if change.severity is None else change.severity.name
    return f"{severity}  {harmless(change.reason or change.sentence or '', 90)}"
