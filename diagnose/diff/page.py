"""A comparison as a document, for Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.diff.comparison import GROUPS, Diff, FindingChange, Quantity
from diagnose.diff.noise import METHOD
from diagnose.diff.text import setting_text
from diagnose.diff.words import (
    FATES,
    LEGEND,
    SIGNS,
    cautions,
    change_of,
    counts_of,
    extent_of,
    headline,
    name_of,
    of_one_side,
    shown,
)
from diagnose.document import (
    Block,
    Bullets,
    Document,
    Heading,
    Paragraph,
    Table,
    Text,
    code,
    strong,
)
from diagnose.words import NOT_MEASURED


def to_page(diff: Diff) -> Document:
    """Returns a comparison as a document."""
    return Document("Two windows compared", tuple(_blocks(diff)))


def _blocks(diff: Diff) -> Iterator[Block]:
    yield Heading(1, "Two windows compared")
    yield Paragraph(strong(headline(diff)))
    rows = tuple(
        (side.name, name_of(side), extent_of(side), side.diagnosis.verdict.sentence)
        for side in (diff.a, diff.b)
    )
    yield Table("Sides", ("", "engine", "window", "verdict"), rows)
    said = cautions(diff)
    if said:
        yield Bullets(tuple(said))
    if diff.findings:
        yield Heading(2, "Findings")
        found = tuple(_finding(change) for change in diff.findings)
        yield Table("Findings", ("", "rule", "A", "B"), found)
    yield Heading(2, "Settings that differ")
    if diff.settings:
        told = tuple(
            (code(s.name), setting_text(s.old), setting_text(s.new)) for s in diff.settings
        )
        yield Table("Settings", ("setting", "A", "B"), told)
    else:
        yield Paragraph("None differs of those that both sides tell.")
    if diff.settings_of_one_side:
        yield Paragraph(of_one_side(diff))
    yield from _quantities(diff)


def _finding(change: FindingChange) -> tuple[Text, ...]:
    sides = [NOT_MEASURED if each is None else each.sentence for each in (change.a, change.b)]
    if change.why is not None:
        sides[0 if change.a is None else 1] = change.why.partition(": ")[2]
    return (FATES[change.fate], code(change.rule), *sides)


def _quantities(diff: Diff) -> Iterator[Block]:
    for group in GROUPS:
        own = tuple(_quantity(each) for each in diff.quantities if each.group == group)
        if own:
            yield Heading(2, group[:1].upper() + group[1:])
            head = ("", "quantity", "A", "B", "change", "n of A / B")
            yield Table(group, head, own, frozenset({2, 3, 4, 5}))
    if diff.quantities:
        yield Paragraph(LEGEND)
        yield Paragraph(METHOD)


def _quantity(quantity: Quantity) -> tuple[Text, ...]:
    beyond = quantity.outcome == "beyond_noise"
    return (
        SIGNS[quantity.outcome],
        strong(quantity.name) if beyond else quantity.name,
        shown(quantity.a, quantity.unit),
        shown(quantity.b, quantity.unit),
        change_of(quantity),
        counts_of(quantity),
    )
