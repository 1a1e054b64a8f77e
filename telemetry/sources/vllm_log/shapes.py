"""What is shown of a line that was not understood: where it is and how it looks, not what it says.

Such a line may be the rest of a prompt that a log collector cut in pieces, and nothing of a
request is kept anywhere. Whoever wants to read it has its number.
"""

from __future__ import annotations

import re

_LONGEST = 60
_UPPER, _LOWER, _DIGIT = re.compile(r"[^\W\d_a-z]"), re.compile(r"[a-z]"), re.compile(r"\d")


def shape_of(text: str) -> str:
    """Returns how a line looks, and its length, like `Xxx 99, xx (10 characters)`."""
    start = text[:_LONGEST]
    shape = _DIGIT.sub("9", _LOWER.sub("x", _UPPER.sub("X", start)))
    dots = "…" if len(text) > _LONGEST else ""
    return f"{shape}{dots} ({len(text):,} characters)"
