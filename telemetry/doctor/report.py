"""An examination: its parts, and how it is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from telemetry.rendering import printable
from telemetry.vocabulary import Phase

Level: TypeAlias = Literal["good", "warn", "bad", "unknown"]

_MARKS: dict[Level, tuple[str, str]] = {
    "good": ("✓", "32"),
    "warn": ("▲", "33"),
    "bad": ("✗", "31"),
    "unknown": ("–", "2"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    level: Level
    name: str
    text: str


@dataclass(slots=True)
class EngineHealth:
    """All that is known about the recording of one engine start."""

    engine: str
    title: str
    checks: list[Check] = field(default_factory=list)


@dataclass(slots=True)
class Examination:
    """What `doctor` found."""

    log: str
    checks: list[Check]
    engines: list[EngineHealth]
    num_more_engines: int = 0


def text_report(examination: Examination, *, colour: bool) -> str:
    """Returns an examination for a terminal."""
    lines = [f"log {printable(examination.log)}", *_lines(examination.checks, colour)]
    for health in examination.engines:
        head = f"engine {health.engine}  {health.title}"
        lines += ["", _style(head, "1", colour), *_lines(health.checks, colour)]
    if not examination.engines:
        lines += ["", "no engine has been recorded here: stepscope serve, or stepscope demo"]
    if examination.num_more_engines:
        lines += ["", f"{examination.num_more_engines} older engine starts are not shown"]
    return "\n".join(lines)


def json_report(examination: Examination) -> str:
    """Returns an examination as JSON."""
    return json.dumps({"schema_version": 1, **asdict(examination)}, indent=1)


def _lines(checks: list[Check], colour: bool) -> list[str]:
    lines = []
    for check in checks:
        mark, code = _MARKS[check.level]
        lines.append(f"{_style(mark, code, colour)} {check.name:<16} {printable(check.text)}")
    return lines


def _style(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def count_text(value: int | None) -> str:
    """Returns a count with commas."""
    return "–" if value is None else f"{value:,}"


def phase_text(code: int | None) -> str:
    """Returns the name of a phase."""
    return Phase(code).name if code in list(Phase) else "–"


def seconds_text(ns: int) -> str:
    """Returns a duration of nanoseconds in seconds."""
    return f"{max(ns, 0) / 1e9:,.2f} s"


def utc_text(ts: int) -> str:
    """Returns a time to the millisecond."""
    return datetime.fromtimestamp(ts / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
