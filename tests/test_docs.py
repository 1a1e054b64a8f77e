"""What a user may meet is documented: words of the record, columns, flags, decisions."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest

from stepscope import build_parser
from telemetry.tables import DENSE_TABLES, TABLES
from telemetry.vocabulary import VOCABULARIES, SkipReason, StopReason, WaitReason

DOCS = Path(__file__).parents[1] / "docs"


def words_of(enum: type[IntEnum]) -> set[str]:
    """Returns the words in the first column of the table headed by an enum's name."""
    page = (DOCS / "record.md").read_text()
    table = re.search(rf"^\| {enum.__name__} \|.*\n\|-.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert table is not None, f"docs/record.md has no table headed {enum.__name__}"
    first_cells = "".join(row.split("|")[1] for row in table[1].splitlines())
    return set(re.findall(r"`(\w+)`", first_cells))


@pytest.mark.parametrize("enum", VOCABULARIES.values(), ids=lambda enum: enum.__name__)
def test_every_word_of_the_record_is_explained(enum: type[IntEnum]) -> None:
    names = {code.name for code in enum}
    if enum is WaitReason:  # the others are explained where they come from
        names -= {code.name for other in (SkipReason, StopReason) for code in other}
    assert words_of(enum) == names


def test_every_column_of_every_table_is_described() -> None:
    tables = {**TABLES, **DENSE_TABLES}
    bare = [f"{name}.{c.name}" for name, cs in tables.items() for c in cs if not c.doc.strip()]
    assert bare == []


def options() -> Iterator[tuple[str, argparse.Action]]:
    """Yields every option of every command."""
    (commands,) = (a for a in build_parser()._actions if isinstance(a.choices, dict))
    assert isinstance(commands.choices, dict)
    for name, command in commands.choices.items():
        yield from ((name, action) for action in command._actions)


def test_every_option_has_its_help() -> None:
    bare = [
        f"{command} {(action.option_strings or [action.dest])[0]}"
        for command, action in options()
        if not re.search("[a-z]{2}", (action.help or "").replace("%(default)s", ""))
        and action.help is not argparse.SUPPRESS
    ]
    assert bare == []


def test_every_decision_is_listed() -> None:
    pages = {page.name for page in (DOCS / "decisions").glob("[0-9]*.md")}
    listed = re.findall(r"\]\((.+)\)", (DOCS / "decisions" / "README.md").read_text())
    assert sorted(listed) == sorted(pages)


def commands_in(page: Path) -> list[str]:
    """Returns the stepscope commands of a page's code blocks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("stepscope ")]


@pytest.mark.parametrize("line", commands_in(DOCS.parent / "README.md"))
def test_a_command_of_the_readme_can_be_typed(line: str) -> None:
    words = shlex.split(line, comments=True)
    assert build_parser().parse_args(words[1:]).command == words[1]
