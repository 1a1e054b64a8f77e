"""docs/step-log.md and docs/cookbook.md are what their commands make, and complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.records import SCHEMA_VERSION
from telemetry.sql import MACRO_DOCS, VIEWS, cookbook, page
from telemetry.sql.measures import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    polarity_of,
    unit_of,
)
from telemetry.sql.packed_log import opened
from telemetry.sql.table_docs import TABLE_DOCS
from telemetry.store import Log
from telemetry.tables import DENSE_TABLES, TABLES
from tests.telemetry.log_builder import connect, records

ROOT = Path(__file__).parents[2]
COLUMNS = [(t, c) for t, cs in {**TABLES, **DENSE_TABLES}.items() for c in cs]
EXAMPLES = {
    **{name: view.example for name, view in VIEWS.items()},
    **{name: macro.example for name, macro in MACRO_DOCS.items()},
    **{name: table.example for name, table in TABLE_DOCS.items()},
}


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with opened(ROOT / "tests" / "data" / "step_logs" / f"v{SCHEMA_VERSION}.tar.xz") as recorded:
        yield recorded


def test_the_page_of_the_step_log_is_what_its_command_makes(log: Log) -> None:
    assert (ROOT / "docs" / "step-log.md").read_text() == page.page(log), f"run: {page.COMMAND}"


def test_the_cookbook_is_what_its_command_makes(log: Log) -> None:
    assert (ROOT / "docs" / "cookbook.md").read_text() == cookbook.page(log), (
        f"run: {cookbook.COMMAND}"
    )


def test_every_table_is_documented() -> None:
    asked = {*TABLES, *DENSE_TABLES, "vocabulary", "schema_info"}
    assert set(TABLE_DOCS) == asked


def test_every_macro_is_documented() -> None:
    made = records(
        connect(),
        "SELECT DISTINCT function_name AS name FROM duckdb_functions() WHERE NOT internal",
    )
    assert {row["name"] for row in made} == set(MACRO_DOCS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_gives_an_answer(log: Log, name: str) -> None:
    assert name in EXAMPLES[name]
    assert log.query(EXAMPLES[name]).num_columns > 0


def test_an_example_that_groups_says_its_order() -> None:
    """Groups come in any order otherwise, and the page would change from run to run."""
    last = [sql.rpartition("GROUP BY")[2] for sql in EXAMPLES.values() if "GROUP BY" in sql]
    assert last
    assert [clause for clause in last if "ORDER BY" not in clause] == []


@pytest.mark.parametrize("name", VIEWS)
def test_the_example_of_a_view_has_rows(log: Log, name: str) -> None:
    assert log.query(EXAMPLES[name]).num_rows > 0


def test_every_number_of_a_table_has_a_unit() -> None:
    bare = [
        f"{table}.{column.name}"
        for table, column in COLUMNS
        if column.name.startswith("num_") and unit_of(column) == "-"
    ]
    assert bare == []
    assert all(unit_of(c) == "ns" for _, c in COLUMNS if c.name.endswith(("_ns", "_ts")))


def test_polarities_are_of_columns_that_there_are() -> None:
    names = {column.name for _, column in COLUMNS}
    assert names >= LOWER_IS_BETTER | HIGHER_IS_BETTER
    assert not LOWER_IS_BETTER & HIGHER_IS_BETTER


def test_a_table_and_a_view_agree_on_a_column() -> None:
    of_tables = {c.name: (unit_of(c), polarity_of(c)) for _, c in COLUMNS}
    differing = {
        f"{view.name}.{column.name}: {(column.unit, column.polarity)} {of_tables[column.name]}"
        for view in VIEWS.values()
        for column in view.columns
        if column.name in of_tables and (column.unit, column.polarity) != of_tables[column.name]
    }
    assert differing == set()


def test_every_name_of_the_index_leads_to_a_section(log: Log) -> None:
    text = page.page(log)
    for name in EXAMPLES:
        assert f"](#{name})" in text
        assert f"\n### {name}\n" in text
