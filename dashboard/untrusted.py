"""Ids and names come from outside: made harmless before they stand in markdown or HTML."""

from __future__ import annotations

import html
import re

from diagnose.markdown import code_span
from diagnose.words import harmless

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^=&@/])")


def in_markdown(text: str | None, limit: int = 40) -> str:
    """Returns text that shows as it is: no emphasis, link, HTML, formula or directive in it."""
    return _SPECIAL.sub(r"\\\1", harmless(text, limit))


def prose_in_markdown(text: str | None, limit: int = 400) -> str:
    """Returns text that shows as it is, but for what stands between two backticks: that is code."""
    parts = harmless(text, limit).split("`")
    if len(parts) % 2 == 0:  # one has no partner
        return in_markdown(text, limit)
    return "".join(
        _code(part) if nth % 2 else in_markdown(part, limit) for nth, part in enumerate(parts)
    )


def _code(words: str) -> str:
    return code_span(words) if words.strip() else in_markdown(f"`{words}`")


def in_html(text: str | None, limit: int = 80) -> str:
    """Returns text for an HTML element or a quoted attribute."""
    return html.escape(harmless(text, limit), quote=True)
