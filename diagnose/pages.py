"""Writes the page of every rule to `docs/rules/`: `python -m diagnose.pages [DIR]`.

The page is the rule's own docstring; this turns it into Markdown and adds version, thresholds and
what silences it. A test fails where a page in `docs/rules/` is not what this writes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from diagnose.rule import PAGE_SECTIONS, Rule
from diagnose.rules import RULES
from diagnose.rules.from_metrics.decisions import DECISIONS

Named = Sequence[tuple[str, int | float, str]]
"""Thresholds: name, value, and where it comes from."""


def page_of(rule: Rule, *, judged_by: str | None = None, thresholds: Named | None = None) -> str:
    """Returns a rule's page as Markdown.

    Args:
        rule: the rule.
        judged_by: the sentence that says what it judges; by its decisions if None.
        thresholds: its numbers; those of its module if None.

    Raises:
        ValueError: a section is missing or stands in the wrong place.
    """
    sections = rule.sections()
    if tuple(sections)[1:] != PAGE_SECTIONS:
        raise ValueError(f"the page of {rule.id} has sections {list(sections)[1:]}")
    name, summary = sections[""].split(": ", 1)
    lines = [f"# {name}", "", summary[0].upper() + summary[1:], "", f"Version {rule.version}."]
    lines[-1] += f" {_judged_by(rule) if judged_by is None else judged_by}"
    if rule.silenced_by:
        lines[-1] += f" Silenced by {', '.join(f'`{other}`' for other in rule.silenced_by)}."
    for heading in PAGE_SECTIONS:
        lines += ["", f"## {heading}", "", sections[heading]]
    if rule.id in DECISIONS:
        lines += ["", "## From scrapes alone", "", from_scrapes(rule)]
    rows = _thresholds(rule) if thresholds is None else [_row(*each) for each in thresholds]
    if rows:
        lines += ["", "## Thresholds", "", "| name | value | |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def write_pages(directory: Path) -> list[Path]:
    """Writes all pages; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for rule in RULES.values():
        path = directory / f"{rule.id}.md"
        path.write_text(page_of(rule), encoding="utf-8")
        paths.append(path)
    return paths


def _judged_by(rule: Rule) -> str:
    if rule.decide_metrics is None:
        return "Judges step records; from scrapes alone it is not measured."
    if rule.decide is None:
        return "Judges scrapes of an engine whose steps are not recorded."
    return "Judges step records, and scrapes of an engine that has none."


def from_scrapes(rule: Rule) -> str:
    """Returns what the docstring of a rule's decision on scrapes says after the rule's name."""
    text = (inspect.getmodule(DECISIONS[rule.id]).__doc__ or "").strip()
    told = text.removeprefix(f"{rule.id}, from scrapes alone").lstrip(".: \n")
    return told[:1].upper() + told[1:]


def _thresholds(rule: Rule) -> list[str]:
    """Returns a table row for each named number of the rule's modules and its note."""
    name = rule.id.replace("-", "_")
    rows = _numbers_of(importlib.import_module(f"diagnose.rules.{name}"))
    if rule.id in DECISIONS:
        own = _numbers_of(importlib.import_module(f"diagnose.rules.from_metrics.{name}"))
        rows += [f"{row.removesuffix(' |')} (Scrapes alone.) |" for row in own]
    return rows


def _numbers_of(module: ModuleType) -> list[str]:
    body = ast.parse(inspect.getsource(module)).body
    rows = []
    for statement, note in pairwise(body):
        match statement, note:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if isinstance(getattr(module, name), int | float):
                said = " ".join(text.split())
                rows.append(_row(name, getattr(module, name), said))
    return rows


def _row(name: str, value: int | float, note: str) -> str:
    return f"| `{name}` | {value:,} | {note} |"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/rules")
    for written in write_pages(target):
        print(written)
