"""Refuses statements that are short and make something enormous.

DuckDB's memory limit does not count text that a function builds (2 GB of it take 25 s in which an
interrupt is not heard), nor the planning of a statement (thirty CTEs of two stars each are planned
for ever). So a value's length has to be written down as a number, and stars are counted before.

An estimate, not a proof: who means harm finds another way, and then the time limit and, for a
collector, its being expendable have to do.
"""

from __future__ import annotations

import re
from typing import Any

from telemetry.errors import QueryRefused
from telemetry.store.tree import Node, arguments, constant, function_name, nodes

MAX_BUILT = 10_000
"""How many characters or elements a function may make out of a single one."""
MAX_REPLACEMENT = 100
"""How many characters may stand in for each match."""
MAX_UNFOLDED = 100_000
"""How many columns the stars and CTEs of a statement may unfold into."""

_LENGTH_AT = {
    "repeat": 1,
    "lpad": 1,
    "rpad": 1,
    "list_resize": 1,
    "array_resize": 1,
    "bitstring": 1,
}
_LISTS_OF_NUMBERS = ("range", "generate_series")
_FORMATS = ("format", "printf")
_REPLACERS = ("replace", "regexp_replace")
_WIDTH = re.compile(r"\{[^{}]*?(\d+)[^{}]*\}|%[-+ 0#]*(\d+)")


def check_growth(tree: Node) -> None:
    """Checks how large the values and the columns of a statement may become.

    Raises:
        QueryRefused: Larger than is allowed, or nobody can say how large.
    """
    repeated, longest = 1, 1
    for call in nodes(tree):
        length = _length(call)
        if function_name(call) == "repeat":
            repeated *= max(1, length)
        longest = max(longest, length)
        if max(longest, repeated) > MAX_BUILT:
            raise QueryRefused(
                f"{function_name(call)} would make a value of {max(longest, repeated):,} "
                f"characters or elements: {MAX_BUILT:,} is the most"
            )
    if _Unfolding().size(tree) > MAX_UNFOLDED:
        raise QueryRefused(
            f"the stars and CTEs of the statement unfold into more than {MAX_UNFOLDED:,} columns: "
            "name the columns that are needed"
        )


def _length(call: Node) -> int:
    """Returns how long a call may make a value."""
    name, given = function_name(call), arguments(call)
    if name in _LENGTH_AT:
        return max([0, *(_number(name, each) for each in given[_LENGTH_AT[name] :][:1])])
    if name in _LISTS_OF_NUMBERS:
        return max([0, *(_number(name, each) for each in given)])
    if name in _FORMATS:
        return _width(name, given)
    if name in _REPLACERS:
        _check_replacement(name, given)
    return 0


def _number(name: str, argument: Node) -> int:
    value = constant(argument)
    if not isinstance(value, int):
        raise QueryRefused(
            f"{name} is refused where its length is not a plain number: write the number, or use "
            "bar() for a bar and FROM range(...) for rows"
        )
    return abs(value)


def _width(name: str, given: list[Node]) -> int:
    """Returns the greatest width in a format's text."""
    text = constant(given[0]) if given else ""
    if not isinstance(text, str) or re.search(r"\{[^{}]*\{|%[^%a-zA-Z]*\*", text):
        raise QueryRefused(
            f"{name} is refused where its format is not a plain text with its widths"
        )
    return max([0, *(int(a or b) for a, b in _WIDTH.findall(text))])


def _check_replacement(name: str, given: list[Node]) -> None:
    text = constant(given[2]) if len(given) > 2 else ""
    if not isinstance(text, str) or len(text) > MAX_REPLACEMENT:
        raise QueryRefused(
            f"{name} is refused where what it puts in is not a plain text of at most "
            f"{MAX_REPLACEMENT} characters"
        )


class _Unfolding:
    """Counts the columns that a statement unfolds into: CTEs and stars multiply.

    A table counts as one column, a star as all that it stands over.
    """

    def __init__(self) -> None:
        self._ctes: dict[str, int] = {}

    def size(self, part: Any) -> int:
        """Returns the count for a part of a statement's tree."""
        if isinstance(part, list):
            return sum(map(self.size, part))
        if not isinstance(part, dict):
            return 0
        for entry in part.get("cte_map", {}).get("map", []):
            name = str(entry.get("key", "")).lower()
            self._ctes[name] = 1  # for itself, where it is recursive
            self._ctes[name] = max(1, self.size(entry.get("value")))
        if part.get("type") == "BASE_TABLE":
            return self._ctes.get(str(part.get("table_name", "")).lower(), 1)
        below = self.size(part.get("from_table"))
        rest = [value for name, value in part.items() if name not in ("cte_map", "from_table")]
        if "select_list" not in part:
            return below + self.size(rest)
        num_stars = [item.get("class") for item in part["select_list"]].count("STAR")
        return max(1, num_stars) * max(1, below) + self.size(rest)
