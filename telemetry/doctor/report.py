"""An examination: its parts, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from telemetry.doctor.check import Check, Level
from telemetry.doctor.deep import DeepCheck
from telemetry.doctor.deep_report import block_table, checks_of, verdict_of
from telemetry.doctor.plugin import ATTACH, PluginReport
from telemetry.rendering import printable

_MARKS: dict[Level, tuple[str, str]] = {
    "good": ("✓", "32"),
    "warn": ("▲", "33"),
    "bad": ("✗", "31"),
    "unknown": ("–", "2"),
}


@dataclass(slots=True)
class EngineHealth:
    """All that is known about the recording of one engine start.

    `plugin` is what the plug-in in a vLLM says; None for an engine of another kind.
    """

    engine: str
    title: str
    checks: list[Check] = field(default_factory=list)
    plugin: PluginReport | None = None


@dataclass(slots=True)
class Examination:
    """What `doctor` found. `deep` is None unless the engines were asked for their books."""

    log: str
    checks: list[Check]
    engines: list[EngineHealth]
    num_more_engines: int = 0
    deep: list[DeepCheck] | None = None


def text_report(examination: Examination, *, colour: bool) -> str:
    """Returns an examination for a terminal."""
    lines = [f"log {printable(examination.log)}", *_lines(examination.checks, colour)]
    for health in examination.engines:
        head = f"engine {health.engine}  {health.title}"
        lines += ["", _style(head, "1", colour), *_lines(health.checks, colour)]
    if not examination.engines:
        lines += ["", "no engine has been recorded here: stepscope serve, or stepscope demo"]
        lines += ["a vLLM of yours: " + printable(ATTACH.format(log=examination.log))]
    if examination.num_more_engines:
        lines += ["", f"{examination.num_more_engines} older engine starts are not shown"]
    if examination.deep is not None:
        lines += _deep_lines(examination.deep, colour)
    return "\n".join(lines)


def json_report(examination: Examination) -> str:
    """Returns an examination as JSON."""
    return json.dumps({"schema_version": 1, **asdict(examination)}, indent=1)


def _deep_lines(deep: list[DeepCheck], colour: bool) -> list[str]:
    if not deep:
        return ["", "no running engine to check: name the address of one with --url"]
    lines = []
    for check in deep:
        lines += ["", _style(check.title, "1", colour), *_lines(verdict_of(check), colour)]
        lines += [*block_table(check), *_lines(checks_of(check), colour)]
    return lines


def _lines(checks: Iterable[Check], colour: bool) -> list[str]:
    lines = []
    for check in checks:
        mark, code = _MARKS[check.level]
        lines.append(f"{_style(mark, code, colour)} {check.name:<16} {printable(check.text)}")
    return lines


def _style(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
