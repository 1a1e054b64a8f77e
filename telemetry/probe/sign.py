"""What a probe saw, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sign:
    """What one thing showed. `ok` is None where nothing could be seen."""

    ok: bool | None
    text: str


def report(signs: Iterable[Sign]) -> str:
    """Returns a line a sign."""
    marks = {True: "✓", False: "✗", None: "–"}
    return "\n".join(f"{marks[sign.ok]} {sign.text}" for sign in signs)


def exit_code(signs: Iterable[Sign]) -> int:
    """Returns 1 where something was seen to stand still, else 0."""
    return 1 if any(sign.ok is False for sign in signs) else 0
