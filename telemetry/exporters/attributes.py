"""Ids and names from outside, made fit for labels and attributes.

They are untrusted: a client chooses its request's id, a user the model's name. Control characters
are shown as escapes and the length is bounded, so that no tool further on is moved, coloured or
flooded by them. What the tool itself must escape (quotes in a Prometheus label, `<` in HTML) is
left to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from telemetry.rendering import printable

LONGEST_TEXT = 256
"""Characters of an attribute's value."""
LONGEST_LABEL = 128
"""Characters of a label's value."""
MOST_ITEMS = 64
"""Items of an attribute that is a list."""

_LARGEST_INT = (1 << 63) - 1

Value: TypeAlias = str | bool | int | float | list[str]


def bounded(text: str, limit: int = LONGEST_TEXT) -> str:
    """Returns printable text of at most `limit` characters; a longer one ends with an ellipsis."""
    text = printable(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def label(value: object) -> str:
    """Returns a label's value; empty where nothing is known, which Prometheus takes as absent."""
    return "" if value is None else bounded(str(value), LONGEST_LABEL)


def attributes(known: Mapping[str, Any]) -> dict[str, Value]:
    """Returns attributes as OpenTelemetry takes them; what is not known is left out.

    A whole number of more than 63 bits becomes text, since the wire holds no larger ones.
    """
    return {name: _value(value) for name, value in known.items() if value is not None}


def _value(value: Any) -> Value:
    match value:
        case bool() | float():
            return value
        case int():
            return value if -_LARGEST_INT <= value <= _LARGEST_INT else str(value)
        case list() | tuple():
            return [bounded(str(item)) for item in value[:MOST_ITEMS]]
        case _:
            return bounded(str(value))
