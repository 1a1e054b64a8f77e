"""PromQL taken apart at its outermost `or`, `and` and `unless`, and put together without a part."""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = re.compile(r"\b(and|or|unless)\b")


def pieces(expr: str) -> list[str]:
    """Returns operands and operators in turn, as they stand outside of all brackets."""
    found, depth, start, quoted = [], 0, 0, False
    index = 0
    while index < len(expr):
        char = expr[index]
        if char == '"':
            quoted = not quoted
        elif not quoted and char in "([{":
            depth += 1
        elif not quoted and char in ")]}":
            depth -= 1
        elif not quoted and depth == 0 and (word := _WORD.match(expr, index)):
            found += [expr[start:index], word[1]]
            index = start = word.end()
            continue
        index += 1
    return [*found, expr[start:]]


def without_each(expr: str) -> Iterator[tuple[str, str]]:
    """Yields each operand that can be left out, and the expression without it."""
    parts = pieces(expr)
    for index in range(1, len(parts), 2):
        left_out = f"{parts[index]} {parts[index + 1].strip()}"
        yield left_out, "".join(_spaced(parts[:index] + parts[index + 2 :]))


def _spaced(parts: list[str]) -> list[str]:
    return [f" {part} " if index % 2 else part for index, part in enumerate(parts)]
