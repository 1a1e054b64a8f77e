"""What the SQL page asks and shows: a statement with its values, rows that a browser can hold.

No Streamlit here. The guard is the log's own: one statement that only reads, with a time limit and
a cap on rows, as for `stepscope query`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from diagnose.reading import Scope
from diagnose.words import engine_hex
from telemetry.errors import QueryRefused
from telemetry.query.parameters import ENGINE, WINDOW, used_in, values_for
from telemetry.query.window import Window
from telemetry.rendering import printable
from telemetry.sql.documentation import Parameter, SavedQuery
from telemetry.store.guard import Limits

LIMITS = Limits(timeout_seconds=30.0, max_rows=10_000)
"""What one question of a visitor may take."""
LONGEST_IN_ADDRESS = 1_200
"""Characters of a statement that still go into a link."""
EXACT = 1 << 53
"""Whole numbers from here on a browser would round: they are shown as text."""
PREFIX = "p_"
"""How a statement's parameters are called in an address."""


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asked: the statement, values for its parameters, of one engine or of all."""

    sql: str
    values: tuple[tuple[str, str], ...] = ()
    is_of_engine: bool = True
    saved: str | None = None
    """The saved query that it is, unchanged."""

    def address(self) -> dict[str, str]:
        """Returns the parts of the address that name it; empty where it is too long for one."""
        if self.saved is None and len(self.sql) > LONGEST_IN_ADDRESS:
            return {}
        named = {"q": self.saved} if self.saved is not None else {"sql": self.sql}
        whole = {} if self.is_of_engine else {"of": "all"}
        return named | {f"{PREFIX}{name}": value for name, value in self.values if value} | whole


def of_address(parts: Mapping[str, str], saved: Mapping[str, SavedQuery]) -> Question | None:
    """Returns the question that an address names; None where it names none that is known."""
    name, sql = parts.get("q"), parts.get("sql")
    query = None if name is None else saved.get(name)
    if query is not None:
        sql = query.sql
    if not sql or not sql.strip():
        return None
    given = sorted(
        (key.removeprefix(PREFIX), value) for key, value in parts.items() if key.startswith(PREFIX)
    )
    of_engine = parts.get("of") != "all"
    return Question(sql, tuple(given), of_engine, None if query is None else query.name)


def parameters_of(sql: str, query: SavedQuery | None) -> list[Parameter]:
    """Returns what has to be asked for, in order: the declared ones, then others in the text."""
    declared = {} if query is None else {each.name: each for each in query.parameters}
    used = used_in(sql) - set(WINDOW)
    if ENGINE not in declared:
        used -= {ENGINE}
    own = [each for name, each in declared.items() if name in used]
    more = [
        Parameter(name=name, type="text", default=None, doc="a value for the statement")
        for name in sorted(used - set(declared))
    ]
    return own + more


def values_of(question: Question, query: SavedQuery | None, scope: Scope) -> dict[str, Any]:
    """Returns a value for each parameter; the window and the engine are the page's.

    Raises:
        QueryRefused: a value is missing, or of another type.
    """
    asked = SavedQuery(
        name="the statement" if query is None else query.name,
        doc="",
        question="",
        columns=(),
        parameters=() if query is None else query.parameters,
        sql=question.sql,
    )
    given = {name: value for name, value in question.values if value}
    for each in parameters_of(question.sql, query):
        if each.default is None and each.name not in given:
            raise QueryRefused(f"{asked.name} needs a value for {each.name}: {each.doc}")
    if question.is_of_engine and ENGINE in used_in(question.sql):
        given.setdefault(ENGINE, engine_hex(scope.engine))
    return values_for(asked, given, Window(scope.start_ts, scope.end_ts))


# --------------------------------------------------------------------------------------- the rows


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Returns rows for a browser: engines as hex digits, nothing rounded, text made printable."""
    names = _distinct([printable(name) for name in table.column_names])
    columns = {
        shown: _column(name, column)
        for shown, name, column in zip(names, table.column_names, table.columns, strict=True)
    }
    return pd.DataFrame(columns, columns=names)


def _distinct(names: list[str]) -> list[str]:
    """Returns names of which none comes twice."""
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return told


def _column(name: str, column: pa.ChunkedArray) -> pd.Series[Any]:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return column.to_pandas()
    values = column.to_pylist()
    if name == ENGINE and pa.types.is_integer(kind):
        return pd.Series([None if v is None else engine_hex(v) for v in values], dtype=object)
    if pa.types.is_integer(kind) and all(v is None or abs(v) < EXACT for v in values):
        return pd.Series(values, dtype="Int64")
    return pd.Series([_text(value) for value in values], dtype=object)


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return printable(value)
        case list() | dict():
            return printable(json.dumps(value, default=str))
        case bytes():
            return value.hex()
        case _:
            return printable(str(value))
