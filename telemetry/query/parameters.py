"""The values of a query's parameters: `$from_ns` and `$until_ns`, `$engine`, and its own.

The three can stand in any statement; a saved query may declare more, with defaults.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from telemetry.errors import QueryRefused
from telemetry.query.window import Window
from telemetry.sql.documentation import Parameter, SavedQuery

WINDOW = ("from_ns", "until_ns")
ENGINE = "engine"
_NOT_CODE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PARAMETER = re.compile(r"\$([A-Za-z_]\w*)")


def used_in(sql: str) -> set[str]:
    """Returns the names of the parameters in a statement; texts and comments hold none."""
    return set(_PARAMETER.findall(_NOT_CODE.sub(" ", sql)))


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """Returns names and values of `name=value`.

    Raises:
        QueryRefused: One of them is no such thing, or a name comes twice.
    """
    given: dict[str, str] = {}
    for text in texts:
        name, is_there, value = text.partition("=")
        if not is_there or not name.strip():
            raise QueryRefused(f"--param is {text!r}: write name=value")
        if name.strip() in given:
            raise QueryRefused(f"--param {name.strip()} is given twice: once is enough")
        given[name.strip()] = value
    return given


def values_for(query: SavedQuery, given: dict[str, str], window: Window | None) -> dict[str, Any]:
    """Returns a value for each parameter that the query uses.

    Raises:
        QueryRefused: A parameter is unknown, missing, or its value is of another type.
    """
    used = used_in(query.sql)
    declared = {each.name: each for each in query.parameters}
    _check_known(query, given, used, declared)
    values: dict[str, Any] = {}
    for name in sorted(used):
        if name in WINDOW:
            values[name] = getattr(window, name) if window is not None else None
        elif name == ENGINE and name not in declared:
            values[name] = parse_engine(given[name]) if name in given else None
        else:
            values[name] = _value(query, name, declared.get(name), given.get(name))
    return values


def parse_engine(text: str) -> int:
    """Returns the number of an engine that people write as 16 hex digits.

    Raises:
        QueryRefused: It is none.
    """
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", text):
        raise QueryRefused(f"engine is {text!r}: write its hex digits, as queries show them")
    return int(text, 16)


def _check_known(
    query: SavedQuery, given: dict[str, str], used: set[str], declared: dict[str, Parameter]
) -> None:
    known = sorted((used | set(declared)) - set(WINDOW))
    for name in given:
        if name in WINDOW:
            raise QueryRefused(f"{name} is set by --since and --until: leave out --param {name}")
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
        raise QueryRefused(f"{query.name} has no parameter {name}: {hint}")


def _value(query: SavedQuery, name: str, parameter: Parameter | None, text: str | None) -> Any:
    if text is None:
        text = parameter.default if parameter is not None else None
    if text is None:
        what = f" ({parameter.doc})" if parameter is not None else ""
        raise QueryRefused(f"{query.name} needs {name}{what}: add --param {name}=VALUE")
    kind = parameter.type if parameter is not None else "text"
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "text":
                return text
    except ValueError:
        raise QueryRefused(f"{name} is {text!r}: {query.name} takes a {kind} there") from None
