"""The table of breaks fits the code, so that it cannot rot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.table import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_break_replaces_stands_there_once(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    assert text.count(mutation.old) == 1, f"{mutation.file}: {mutation.old!r}"
    assert mutation.old != mutation.new


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_file_is_still_python(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    compile(text.replace(mutation.old, mutation.new), mutation.file, "exec")


def test_every_break_has_a_name_of_its_own() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names) >= 40
