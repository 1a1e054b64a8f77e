"""What a file of SQL says about itself: the structured comment at its head.

    -- A paragraph: what a row is.
    --? A question that a person asks, which this answers            (saved queries)
    --: column [unit, lower|higher|-] what it is; polarity says which way is better
    --:   continues the line above
    --$ parameter [text|integer|number = default] what it chooses    (saved queries)
    --= SELECT ... an example, a line of it a line                   (views)

Not responsible for running it (`telemetry.sql.library` and `telemetry.query` are).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Literal, cast, get_args

Polarity = Literal["lower", "higher", "-"]
"""Which way is better; `-` where neither is."""

ParameterType = Literal["text", "integer", "number"]
"""What a parameter's value has to be."""

_MARKS = ("--:", "--?", "--$", "--=")
_PARAMETER = re.compile(
    r"--\$ (?P<name>\w+) +\[(?P<type>\w+)(?: = (?P<default>[^\]]*))?\] +(?P<doc>.+)"
)
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
    example: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a saved query; without a default it has to be given."""

    name: str
    type: ParameterType
    default: str | None
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedQuery:
    """A query with a name: what a row is, the question that it answers, what may be chosen."""

    name: str
    doc: str
    question: str
    columns: tuple[ViewColumn, ...]
    parameters: tuple[Parameter, ...]
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
    doc, columns = _prose(head), _columns(name, head)
    if not doc or not columns:
        raise ValueError(
            f"{name}.sql begins without documentation: say what a row is, then columns"
        )
    example = "\n".join(_marked(head, "--="))
    return View(name=name, doc=doc, columns=columns, example=example, sql=sql)


def parse_query(name: str, sql: str) -> SavedQuery:
    """Returns the saved query that `sql` documents and is; its documentation may be short.

    Raises:
        ValueError: a documentation line cannot be read.
    """
    head = _leading_comment(sql)
    return SavedQuery(
        name=name,
        doc=_prose(head),
        question=" ".join(_marked(head, "--?")),
        columns=_columns(name, head),
        parameters=tuple(_parameter(name, line) for line in _unfolded(head, "--$")),
        sql="\n".join(sql.splitlines()[len(head) :]).strip().removesuffix(";"),
    )


def _leading_comment(sql: str) -> list[str]:
    lines = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return lines


def _prose(head: list[str]) -> str:
    """Returns the paragraph: what no mark sets apart."""
    lines = [line[2:].strip() for line in head if not line.startswith(_MARKS)]
    return " ".join(lines).strip()


def _marked(head: list[str], mark: str) -> list[str]:
    return [line.removeprefix(mark).removeprefix(" ") for line in head if line.startswith(mark)]


def _unfolded(head: list[str], mark: str) -> list[str]:
    """Returns a line an entry: one that begins with the mark and two blanks continues the last."""
    lines: list[str] = []
    for line in head:
        if line.startswith(f"{mark}  ") and lines:
            lines[-1] += " " + line.removeprefix(mark).strip()
        elif line.startswith(mark):
            lines.append(line)
    return lines


def _columns(name: str, head: list[str]) -> tuple[ViewColumn, ...]:
    return tuple(_column(name, line) for line in _unfolded(head, "--:"))


def _column(file: str, line: str) -> ViewColumn:
    match = _COLUMN.fullmatch(line)
    if match is None or match["polarity"] not in get_args(Polarity):
        raise ValueError(
            f"{file}.sql: cannot read {line!r}: write `--: name [unit, lower|higher|-] doc`"
        )
    return ViewColumn(
        name=match["name"],
        unit=match["unit"],
        polarity=cast("Polarity", match["polarity"]),
        doc=match["doc"],
    )


def _parameter(file: str, line: str) -> Parameter:
    match = _PARAMETER.fullmatch(line)
    if match is None or match["type"] not in get_args(ParameterType):
        raise ValueError(
            f"{file}.sql: cannot read {line!r}: write "
            "`--$ name [text|integer|number = default] doc`"
        )
    return Parameter(
        name=match["name"],
        type=cast("ParameterType", match["type"]),
        default=match["default"],
        doc=match["doc"],
    )
