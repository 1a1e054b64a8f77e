"""A parsed statement as the tree of JSON objects that DuckDB's `json_serialize_sql` gives.

The two majors of DuckDB differ in where a call keeps its arguments and how a constant is written;
nobody else needs to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Node: TypeAlias = dict[str, Any]


def nodes(tree: Any) -> Iterator[Node]:
    """Yields every object of a tree; the call inside a TABLE_FUNCTION is not one of its own."""
    waiting: list[Any] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            yield item
            waiting.extend(value for name, value in item.items() if name != "function")
            waiting.extend(arguments(item.get("function", {})))


def function_name(call: Node) -> str:
    """Returns the function that a call names, in small letters; "" where it is no call."""
    return str(call.get("function_name", "")).lower()


def arguments(call: Node) -> list[Node]:
    """Returns what a function is called with."""
    if "arguments" in call:
        return [each.get("expression", each) for each in call["arguments"]]
    return list(call.get("children", []))


def constant(node: Node) -> int | str | None:
    """Returns the number or text that is written down; None where it has to be worked out."""
    match node:
        case {"type": "VALUE_CONSTANT", "value": {"value": int(value) | str(value)}}:
            return value
        case {"type": "VALUE_CONSTANT", "literal": {"kind": "INTEGER", "text": text}}:
            return int(text)
        case {"type": "VALUE_CONSTANT", "literal": {"kind": "STRING", "text": str(text)}}:
            return text
    return None
