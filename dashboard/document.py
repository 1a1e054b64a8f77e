"""A document's blocks as elements of a page: the very content of a report, in the page's look."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

import streamlit as st

from dashboard import header
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from diagnose.document import (
    Block,
    Bullets,
    Details,
    Figure,
    Heading,
    Paragraph,
    Piece,
    Statement,
    Table,
    Text,
    pieces_of,
)
from diagnose.markdown import code_span

LONGEST = 600
"""Characters of a piece that are shown."""
Link = Callable[[str], str]
"""Returns the first cell of a row as markdown with a link in it."""


def draw(page: Page, blocks: Iterable[Block], *, key: str, link: Link | None = None) -> None:
    """Draws blocks under each other; charts and headings are the page's own business.

    Args:
        page: answers the statements.
        blocks: what to draw.
        key: makes the elements' keys differ from those of other blocks.
        link: leads from the first column of a table to another page.
    """
    statements = {}
    for number, block in enumerate(blocks):
        match block:
            case Paragraph(text):
                st.markdown(inline(text))
            case Bullets(items):
                st.markdown("\n".join(f"- {inline(item)}" for item in items))
            case Table():
                table(block, key=f"{key}-{number}", link=link)
            case Details(summary, inner):
                with st.expander(in_markdown(summary, LONGEST)):
                    draw(page, inner, key=f"{key}-{number}", link=link)
            case Statement(name, sql):
                statements[name] = sql
            case Heading() | Figure():
                continue
            case _:
                assert_never(block)
    if statements:
        header.links(page, statements, key)


def inline(text: Text) -> str:
    """Returns a text as Streamlit's markdown; none of its pieces is markup."""
    return "".join(_piece(piece) for piece in pieces_of(text))


def _piece(piece: Piece) -> str:
    match piece.role:
        case "plain":
            return _kept(piece.text)
        case "muted":
            return f":gray[{_kept(piece.text)}]"
        case "code":
            return code_span(piece.text[:LONGEST])
        case "strong":
            words = piece.text.strip()
            before, after = piece.text.split(words, 1) if words else (piece.text, "")
            return f"{before}**{in_markdown(words, LONGEST)}**{after}" if words else before
        case _:
            assert_never(piece.role)


def _kept(text: str) -> str:
    return in_markdown(text, LONGEST)


def table(shown: Table, *, key: str, link: Link | None = None) -> None:
    """Draws a table; its numbers stand at the right, one without names has none above it."""
    width = max((len(row) for row in shown.rows), default=0)
    names = _distinct(shown.head or ("",) * width)
    rows = [dict(zip(names, _cells(row, link), strict=False)) for row in shown.rows]
    right = "".join(f"-c{column + 1}" for column in sorted(shown.numbers))
    with st.container(key=f"doc-{key}{right}"):
        st.table(
            rows,
            border="horizontal",
            hide_index=True,
            hide_header=not any(shown.head),
            alt=shown.name,
        )


def _cells(row: tuple[Text, ...], link: Link | None) -> list[str]:
    cells = [inline(cell) for cell in row]
    first = row[0]
    if link is not None and isinstance(first, str | Piece):
        cells[0] = link(first if isinstance(first, str) else first.text)
    return cells


def _distinct(names: tuple[str, ...]) -> list[str]:
    """Returns column names of which no two are equal: an empty one is as many spaces."""
    return [name or " " * (number + 1) for number, name in enumerate(names)]
