"""A document as one HTML page. Every text is escaped; the page may load and run nothing."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from dashboard import colours
from dashboard.report.pictures import Picture
from dashboard.report.sheet import style_sheet
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
    plain,
)
from diagnose.reading import Scope
from diagnose.text.lines import SHAPES
from diagnose.words import without_controls

Draw = Callable[[Scope], Sequence[Picture]]
"""Returns the charts of a window."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may do: have a style of its own, and nothing else."""

SHORT = 12
"""Rows of a table that is not torn apart on paper."""

_CLASSES = {shape: severity.name for severity, shape in SHAPES.items()} | {"✓": "well"}


def to_html(document: Document, draw: Draw = lambda scope: ()) -> str:
    """Returns a document as a page that needs nothing beside itself."""
    body = "\n".join(_Writer(draw).blocks(document.blocks))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escaped(document.title)}</title>
<style>{style_sheet()}</style>
</head>
<body>
<main>
<header class="brand">{_mark()}<b>Stepscope</b><span>incident report</span></header>
{body}
</main>
</body>
</html>
"""


def escaped(text: str) -> str:
    """Returns text for an element or a quoted attribute."""
    return html.escape(without_controls(text), quote=True)


def _mark() -> str:
    """Returns three steps in the colours of work, cost and memory."""
    bars = "".join(
        f'<rect x="{x}" y="{20 - h}" width="5" height="{h}" rx="1.5" fill="{c.light}"/>'
        for x, h, c in ((1, 8, colours.USEFUL), (8, 13, colours.LOST), (15, 18, colours.EVICTED))
    )
    return f'<svg viewBox="0 0 21 21" aria-hidden="true">{bars}</svg>'


class _Writer:
    """Writes blocks in order; the severity that was named last colours what follows."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._edge = ""

    def blocks(self, blocks: Sequence[Block]) -> Iterator[str]:
        for block in blocks:
            yield from self._block(block)

    def _block(self, block: Block) -> Iterator[str]:
        match block:
            case Heading(level, text):
                yield self._heading(level, text)
            case Paragraph(text):
                yield self._paragraph(text)
            case Bullets(items):
                yield f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"
            case Table():
                yield table(block)
            case Statement(name, sql):
                lines = "\n".join(escaped(line) for line in sql.splitlines())
                yield f"<p>{escaped(name)}</p><pre>{lines}</pre>"
            case Details(summary, blocks):
                inside = "".join(self.blocks(blocks))
                yield f"<details><summary>{escaped(summary)}</summary>{inside}</details>"
            case Figure(scope):
                yield from (figure(picture) for picture in self._draw(scope))
            case _:
                assert_never(block)

    def _heading(self, level: int, text: Text) -> str:
        edge = _severity_of(plain(text))
        if level > 1 and edge:
            self._edge = edge
            return f'<h{level} class="finding {edge}">{_badged(plain(text))}</h{level}>'
        return f"<h{level}>{inline(text)}</h{level}>"

    def _paragraph(self, text: Text) -> str:
        pieces = list(pieces_of(text))
        if len(pieces) == 1 and pieces[0].role == "strong":
            return f'<p class="lead {self._edge}">{escaped(pieces[0].text)}</p>'
        named = [edge for piece in pieces if (edge := _severity_of(piece.text))]
        if named:
            self._edge = named[0]
        kind = ' class="meta"' if named else ""
        return f"<p{kind}>{inline(text)}</p>"


def _severity_of(text: str) -> str:
    return _CLASSES.get(text[:1], "")


def _badged(text: str) -> str:
    """Returns a heading whose shape has the severity's colour."""
    return f'<span class="badge">{escaped(text[:1])}</span>{escaped(text[1:])}'


def inline(text: Text) -> str:
    """Returns a text as HTML."""
    return "".join(_piece(piece) for piece in pieces_of(text))


def _piece(piece: Piece) -> str:
    said = escaped(piece.text)
    match piece.role:
        case "plain" | "muted":
            return said
        case "code":
            return f"<code>{said}</code>"
        case "strong":
            edge = _severity_of(piece.text)
            if edge:
                return f'<span class="badge {edge}">{said}</span>'
            return f"<b>{said}</b>"
        case _:
            assert_never(piece.role)


def table(shown: Table) -> str:
    """Returns a table; one without column names has its names in the first column."""
    head = ""
    if shown.head:
        cells = "".join(
            f'<th scope="col"{_number(shown, column)}>{escaped(name)}</th>'
            for column, name in enumerate(shown.head)
        )
        head = f"<thead><tr>{cells}</tr></thead>"
    rows = "".join(f"<tr>{_cells(shown, row)}</tr>" for row in shown.rows)
    kind = "facts" if not any(shown.head) else "short" if len(shown.rows) <= SHORT else "long"
    return (
        f'<div class="scroll"><table class="{kind}" aria-label="{escaped(shown.name)}">{head}'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cells(shown: Table, row: tuple[Text, ...]) -> str:
    told = []
    for column, cell in enumerate(row):
        if column == 0 and not any(shown.head):
            told.append(f'<th scope="row">{inline(cell)}</th>')
        else:
            told.append(f"<td{_number(shown, column)}>{inline(cell)}</td>")
    return "".join(told)


def _number(shown: Table, column: int) -> str:
    return ' class="n"' if column in shown.numbers else ""


def figure(picture: Picture) -> str:
    """Returns a chart in both themes, with its numbers for those who cannot see it."""
    themes = "".join(f'<div class="{theme}">{svg}</div>' for theme, svg in picture.svg.items())
    numbers = f"<details><summary>{escaped(picture.table.name)}</summary>{table(picture.table)}"
    said = escaped(picture.title)
    kind = ' class="narrow"' if picture.is_narrow else ""
    return (
        f'<figure{kind} style="max-width:{picture.width}px"><figcaption>{said}</figcaption>'
        f'<div role="img" aria-label="{said}; its numbers follow as a table">{themes}</div>'
        f"{numbers}</details></figure>"
    )
