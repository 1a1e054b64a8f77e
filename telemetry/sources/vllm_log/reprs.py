"""Settings out of the way Python prints them: `name=value, other=Kind(a=1), ...`.

A log prints vLLM's configuration as Python reprs, with values among them that no parser of Python
reads (`dtype=torch.bfloat16`, `<CompilationMode.NONE: 0>`), and it may be cut off. So it is read
piece by piece; a piece that is not understood is a text, and nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_OPENING, _CLOSING = "([{<", ")]}>"
_DEEPEST = 4
_MOST_ITEMS = 400
_NUMBER = re.compile(r"[+-]?(?:\d+|(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)")
_CALL = re.compile(r"[A-Za-z_][\w.]*\(")
_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False}


def settings_of(text: str, depth: int = 0) -> dict[str, Any]:
    """Returns the settings of a printed configuration by name: `a=1, 'b': 2` without brackets."""
    found: dict[str, Any] = {}
    for item in _items(text):
        match = re.match(r"(?:'(\w+)'\s*:|\"(\w+)\"\s*:|(\w+)\s*=)\s*", item)
        if match is not None:
            name = match[1] or match[2] or match[3]
            found[name] = value_of(item[match.end() :], depth)
    return found


def value_of(text: str, depth: int = 0) -> Any:
    """Returns a printed value: number, flag, text, list, or a dict for a dict or an object."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text) and len(text) < 40:
        return float(text) if re.search(r"[.eE]", text) else int(text)
    if depth < _DEEPEST:
        if text[:1] == "{":
            return settings_of(text[1:].removesuffix("}"), depth + 1)
        if match := _CALL.match(text):
            return settings_of(text[match.end() :].removesuffix(")"), depth + 1)
        if text[:1] in ("[", "("):
            return [value_of(item, depth + 1) for item in _items(text[1:-1])]
    if text[:1] in ("'", '"'):
        return text[1:].removesuffix(text[0])
    return text.strip("<>").partition(": ")[0]


def _items(text: str) -> Iterator[str]:
    """Yields what stands between the commas outside of brackets and quotes."""
    start, depth, quote, number = 0, 0, "", 0
    position = 0
    while position < len(text):
        char = text[position]
        if quote:
            if char == "\\":
                position += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
            if depth < 0:  # the end of the object itself: what follows is another matter
                break
        elif char == "," and depth == 0:
            yield text[start:position].strip()
            start, number = position + 1, number + 1
            if number >= _MOST_ITEMS:
                return
        position += 1
    if last := text[start:position].strip():
        yield last
