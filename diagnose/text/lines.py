"""Lines of a report: pieces of text with a role, at most 100 columns wide.

A role is a colour on a terminal and nothing in a pipe: the text is the same. Pieces are never read
as markup, so an id like `[red]` stays what it is.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import IO, Literal

from diagnose.finding import Severity
from diagnose.words import without_controls

WIDTH = 100
"""Columns of a report."""

Role = Literal[
    "plain", "strong", "muted", "critical", "high", "medium", "info", "healthy", "cause", "cost",
    "flag",
]  # fmt: skip

STYLES: dict[Role, str] = {
    "plain": "",
    "strong": "bold",
    "muted": "color(246)",
    "critical": "color(203)",
    "high": "color(215)",
    "medium": "color(221)",
    "info": "color(111)",
    "healthy": "color(78)",
    "cause": "color(209)",
    "cost": "color(205)",
    "flag": "color(111)",
}
"""Rich's style of each role, in 256 colours."""

SHAPES = {
    Severity.critical: "◆",
    Severity.high: "▲",
    Severity.medium: "■",
    Severity.info: "●",
}
"""A shape a severity, so that colour is never alone."""

_ASCII = {
    "◆": "[!!]",
    "▲": "[!]",
    "■": "[~]",
    "●": "[i]",
    "✓": "[ok]",
    "–": "[-]",
    "µ": "u",
    "…": "~",
    "→": "->",
    "×": "x",
}


@dataclass(slots=True)
class Report:
    """Lines under construction. Each is a list of (text, role)."""

    lines: list[list[tuple[str, Role]]] = field(default_factory=list)

    def add(self, *pieces: tuple[str, Role] | str) -> None:
        """Appends a line; control characters, whoever put them there, are made harmless."""
        told: list[tuple[str, Role]] = [(p, "plain") if isinstance(p, str) else p for p in pieces]
        self.lines.append([(without_controls(text), role) for text, role in told])

    def wrapped(
        self,
        text: str,
        indent: int,
        role: Role = "plain",
        label: str = "",
        label_role: Role = "muted",
    ) -> None:
        """Appends text, broken at spaces; `label` stands in the indent of its first line."""
        parts = textwrap.wrap(
            text, WIDTH - indent, break_long_words=True, break_on_hyphens=False
        ) or [""]
        for number, part in enumerate(parts):
            lead = label if number == 0 else ""
            self.add((lead.ljust(indent), label_role), (part, role))

    def flow(self, items: list[str], indent: int, label: str, role: Role = "plain") -> None:
        """Appends items side by side, three spaces apart, broken between items."""
        lead, line = label, ""
        for item in items:
            longer = f"{line}   {item}" if line else item
            if line and indent + len(longer) > WIDTH:
                self.add((lead.ljust(indent), role), line)
                lead, line = "", item
            else:
                line = longer
        self.add((lead.ljust(indent), role), line[: WIDTH - indent])

    def text(self, *, ascii_only: bool = False) -> str:
        """Returns the lines as plain text."""
        joined = ("".join(piece for piece, _ in line).rstrip() for line in self.lines)
        text = "\n".join(joined) + "\n"
        return in_ascii(text) if ascii_only else text


def in_ascii(text: str) -> str:
    """Returns text with every sign spelled in ASCII."""
    for sign, spelled in _ASCII.items():
        text = text.replace(sign, spelled)
    return text.encode("ascii", "replace").decode("ascii")


def print_report(report: Report, stream: IO[str], *, ascii_only: bool = False) -> None:
    """Prints a report: in colour on a terminal, as the same plain text elsewhere."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal or console.no_color:
        stream.write(report.text(ascii_only=ascii_only))
        return
    for line in report.lines:
        text = Text()
        for piece, role in line:
            text.append(in_ascii(piece) if ascii_only else piece, STYLES[role] or None)
        text.rstrip()
        console.print(text)
