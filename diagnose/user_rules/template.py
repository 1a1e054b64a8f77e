"""Sentences and statements with names in braces, filled without ever evaluating anything.

`{share:percent}` is the column `share` as a percentage. Python's own formatting is not used: it
would follow attributes. A brace around anything but a name is left as it is, so that SQL may have
its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from diagnose.words import count, duration, harmless, percent

_NAME = re.compile(r"\{([a-z_][a-z0-9_]*)(?::([a-z]+))?\}")

FORMATS: dict[str, Callable[[Any], str]] = {
    "count": count,
    "percent": percent,
    "duration": duration,
}
"""How a number may be written: `1,162`, `5.9 %` of a ratio, nanoseconds as `2.40 s`."""


def names_in(template: str) -> tuple[tuple[str, str | None], ...]:
    """Returns the names in a template's braces, each with its format."""
    return tuple((match[1], match[2]) for match in _NAME.finditer(template))


def fill_sentence(template: str, values: Mapping[str, Any]) -> str:
    """Returns a sentence with its numbers; what is NULL is a dash."""
    return _NAME.sub(lambda match: _written(values.get(match[1]), match[2]), template)


def _written(value: Any, form: str | None) -> str:
    if value is None:
        return count(None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return FORMATS[form or "count"](value)
    return harmless(str(value))


def fill_statement(template: str, numbers: Mapping[str, object]) -> str:
    """Returns a statement with the window's and the thresholds' numbers; others stay."""
    return _NAME.sub(lambda match: str(numbers.get(match[1], match[0])), template).strip()
