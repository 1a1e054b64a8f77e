"""A report as blocks without a form: the same content for Markdown, HTML and whoever comes next.

A text is made of pieces, each with a role; no piece is ever markup. Whoever writes a document out
escapes every piece, so that an id like `<script>` stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from diagnose.reading import Scope

Role = Literal["plain", "strong", "muted", "code"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some words with a role."""

    text: str
    role: Role = "plain"


Text: TypeAlias = str | Piece | tuple[str | Piece, ...]


def strong(text: str) -> Piece:
    """Returns words that stand out."""
    return Piece(text, "strong")


def code(text: str) -> Piece:
    """Returns words as they are typed."""
    return Piece(text, "code")


def muted(text: str) -> Piece:
    """Returns words that step back."""
    return Piece(text, "muted")


def pieces_of(text: Text) -> Iterator[Piece]:
    """Yields the pieces of a text; an arrow is one sign, but in what is typed."""
    for part in text if isinstance(text, tuple) else (text,):
        piece = Piece(part) if isinstance(part, str) else part
        yield piece if piece.role == "code" else Piece(piece.text.replace("->", "→"), piece.role)


def plain(text: Text) -> str:
    """Returns the words of a text alone."""
    return "".join(piece.text for piece in pieces_of(text))


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the document's own."""

    level: int
    text: Text


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    text: Text


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list whose order does not matter."""

    items: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `numbers` are the columns that stand at the right; an empty `head` has no names."""

    name: str
    head: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement and what it gives."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Details:
    """Something to be opened: statements, long tables."""

    summary: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A place for charts of an engine's window; a form without pictures leaves it out."""

    scope: Scope


Block: TypeAlias = Heading | Paragraph | Bullets | Table | Statement | Details | Figure


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    blocks: tuple[Block, ...]
