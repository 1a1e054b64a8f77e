"""Writes the page of every rule to `docs/rules/`: `python -m diagnose.pages [DIR]`.

The page is the rule's own docstring; this turns it into Markdown and adds version, thresholds and
what silences it. A test fails where a page in `docs/rules/` is not what this writes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from itertools import pairwise
from pathlib import Path

from diagnose.rule import PAGE_SECTIONS, Rule
from diagnose.rules import RULES


def page_of(rule: Rule) -> str:
    """Returns a rule's page as Markdown.

    Raises:
        ValueError: a section is missing or stands in the wrong place.
    """
    sections = rule.sections()
    if tuple(sections)[1:] != PAGE_SECTIONS:
        raise ValueError(f"the page of {rule.id} has sections {list(sections)[1:]}")
    name, summary = sections[""].split(": ", 1)
    lines = [f"# {name}", "", summary[0].upper() + summary[1:], "", f"Version {rule.version}."]
    if rule.silenced_by:
        lines[-1] += f" Silenced by {', '.join(f'`{other}`' for other in rule.silenced_by)}."
    for heading in PAGE_SECTIONS:
        lines += ["", f"## {heading}", "", sections[heading]]
    thresholds = _thresholds(rule)
    if thresholds:
        lines += ["", "## Thresholds", "", "| name | value | |", "|---|---|---|", *thresholds]
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


def _thresholds(rule: Rule) -> list[str]:
    """Returns a table row for each named number of the rule's module and its note."""
    module = importlib.import_module(f"diagnose.rules.{rule.id.replace('-', '_')}")
    body = ast.parse(inspect.getsource(module)).body
    rows = []
    for statement, note in pairwise(body):
        match statement, note:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if isinstance(getattr(module, name), int | float):
                said = " ".join(text.split())
                rows.append(f"| `{name}` | {getattr(module, name):,} | {said} |")
    return rows


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/rules")
    for written in write_pages(target):
        print(written)
