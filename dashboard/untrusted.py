"""Ids and names come from outside: made harmless before they stand in markdown or HTML."""

from __future__ import annotations

import html
import re

from diagnose.words import harmless

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^=&@/])")


def in_markdown(text: str | None, limit: int = 40) -> str:
    """Returns text that shows as it is: no emphasis, link, HTML, formula or directive in it."""
    return _SPECIAL.sub(r"\\\1", harmless(text, limit))


def in_html(text: str | None, limit: int = 80) -> str:
    """Returns text for an HTML element or a quoted attribute."""
    return html.escape(harmless(text, limit), quote=True)
