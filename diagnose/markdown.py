"""A document as Markdown that GitHub, GitLab and most wikis show alike.

Every piece is escaped: an id from outside makes no emphasis, link, mention, HTML or table cell.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import assert_never

from diagnose.document import (
    Block,
    Bullets,
    Details,
    Document,
    Figure,
    Heading,
    Paragraph,
    Piece,
    Statement,
    Table,
    Text,
    pieces_of,
)
from diagnose.words import without_controls

_SPECIAL = re.compile(r"[\\`*\[\]|~$@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=www)\.|:(?=//)")
_AT_START = re.compile(r"^([#+=>-]|\d+(?=[.)](?:\s|$)))")


def to_markdown(document: Document) -> str:
    """Returns a document as Markdown."""
    lines = [line for block in document.blocks for line in _block(block)]
    return "\n".join(lines).strip() + "\n"


def escaped(text: str) -> str:
    """Returns text that shows as it is: no emphasis, link, mention, HTML, formula or cell in it."""
    clean = without_controls(text)
    clean = clean.replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(lambda sign: "\\" + sign[0], clean)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading(level, text):
            yield from (f"{'#' * level} {_inline(text)}", "")
        case Paragraph(text):
            yield from (_opening(_inline(text)), "")
        case Bullets(items):
            yield from (f"- {_opening(_inline(item))}" for item in items)
            yield ""
        case Table():
            yield from _table(block)
        case Statement(name, sql):
            yield from (f"{_opening(escaped(name))}", "", *_fenced(sql, "sql"), "")
        case Details(summary, blocks):
            yield from (f"<details><summary>{html.escape(without_controls(summary))}</summary>", "")
            for inner in blocks:
                yield from _block(inner)
            yield from ("</details>", "")
        case Figure():
            return
        case _:
            assert_never(block)


def _opening(line: str) -> str:
    """Returns a line that does not become a heading, list or quote by how it begins."""
    return _AT_START.sub(lambda sign: _without_meaning(sign[0]), line)


def _without_meaning(sign: str) -> str:
    """Returns the beginning of a line escaped; of `1.` the point is what makes a list."""
    return f"&#{ord(sign[0])};{sign[1:]}" if sign[0].isdigit() else "\\" + sign


def _inline(text: Text) -> str:
    return "".join(_piece(piece) for piece in pieces_of(text))


def _piece(piece: Piece) -> str:
    match piece.role:
        case "strong":
            return _strong(piece.text)
        case "code":
            return code_span(piece.text)
        case "plain" | "muted":
            return escaped(piece.text)
        case _:
            assert_never(piece.role)


def _strong(text: str) -> str:
    """Returns words that stand out; spaces at their ends have to lie outside."""
    words = text.strip()
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before}**{escaped(words)}**{after}" if words else text


def code_span(text: str) -> str:
    """Returns a code span; its fence is longer than any in it."""
    clean = without_controls(text)
    longest = max((len(run) for run in re.findall("`+", clean)), default=0)
    fence = "`" * (longest + 1)
    room = " " if longest else ""
    return f"{fence}{room}{clean}{room}{fence}"


def _table(table: Table) -> Iterator[str]:
    width = max(len(row) for row in (table.head, *table.rows)) if table.rows else len(table.head)
    head = table.head or ("",) * width
    marks = ("---:" if column in table.numbers else "---" for column in range(width))
    yield _row([escaped(name) for name in head])
    yield "|" + "|".join(marks) + "|"
    for row in table.rows:
        yield _row([_cell(cell) for cell in row])
    yield ""


def _cell(text: Text) -> str:
    """Returns a cell; a bar inside a code span would end it, so there it is escaped as well."""
    return "".join(
        _piece(piece).replace("|", "\\|") if piece.role == "code" else _piece(piece)
        for piece in pieces_of(text)
    )


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _fenced(text: str, language: str) -> list[str]:
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    lines = (without_controls(line) for line in text.replace("\t", "    ").splitlines())
    return [fence + language, *lines, fence]
