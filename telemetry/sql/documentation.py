"""What a view says about itself: the structured comment at the head of its file.

Not responsible for running it (`telemetry.sql.library` is).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Literal, cast, get_args

Polarity = Literal["lower", "higher", "-"]
"""Which way is better; `-` where neither is."""

_COLUMN = re.compile(r"--: (?P<name>\w+) +\[(?P<unit>[^,\]]+), (?P<polarity>[^\]]+)\] +(?P<doc>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewColumn:
    """A column of a view: `unit` is `ns`, `tokens`, `blocks`, ..., or `-` where it has none."""

    name: str
    unit: str
    polarity: Polarity
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view of the library: what a row is, its columns in order, the statements that make it."""

    name: str
    doc: str
    columns: tuple[ViewColumn, ...]
    sql: str


def read_view(name: str) -> View:
    """Returns the view in `<name>.sql` of this package."""
    path = resources.files("telemetry.sql").joinpath(f"{name}.sql")
    return parse_view(name, path.read_text(encoding="utf-8"))


def parse_view(name: str, sql: str) -> View:
    """Returns the view that `sql` documents and makes.

    Raises:
        ValueError: a documentation line cannot be read, or there is none.
    """
    head = _leading_comment(sql)
    prose = " ".join(line[2:].strip() for line in head if not line.startswith("--:"))
    columns = tuple(_column(name, line) for line in _unfolded(head))
    if not prose or not columns:
        raise ValueError(
            f"{name}.sql begins without documentation: say what a row is, then columns"
        )
    return View(name=name, doc=prose.strip(), columns=columns, sql=sql)


def _leading_comment(sql: str) -> list[str]:
    lines = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return lines


def _unfolded(head: list[str]) -> list[str]:
    """Returns a line a column: one that begins with `--:` and two blanks continues the last."""
    lines: list[str] = []
    for line in head:
        if line.startswith("--:  ") and lines:
            lines[-1] += " " + line[3:].strip()
        elif line.startswith("--:"):
            lines.append(line)
    return lines


def _column(view: str, line: str) -> ViewColumn:
    match = _COLUMN.fullmatch(line)
    if match is None or match["polarity"] not in get_args(Polarity):
        raise ValueError(
            f"{view}.sql: cannot read {line!r}: write `--: name [unit, lower|higher|-] doc`"
        )
    return ViewColumn(
        name=match["name"],
        unit=match["unit"],
        polarity=cast("Polarity", match["polarity"]),
        doc=match["doc"],
    )
