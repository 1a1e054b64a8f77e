"""What rules say is missing is a column that the record has, or a series that a page can have."""

from __future__ import annotations

import re
from pathlib import Path

from telemetry.sources.prometheus.names import CANONICAL
from telemetry.sql import VIEWS
from telemetry.sql.schema import BASE_TABLES

RULES = Path(__file__).parents[2] / "diagnose" / "rules"
COLUMN = re.compile(r'"([a-z_]+\.[a-z_]+)"')


def known() -> set[str]:
    tables = {f"{table}.{c.name}" for table, columns in BASE_TABLES.items() for c in columns}
    return tables | {f"{view.name}.{c.name}" for view in VIEWS.values() for c in view.columns}


def test_every_column_that_a_rule_names_is_in_the_record() -> None:
    named = {
        name
        for file in RULES.rglob("*.py")
        for name in COLUMN.findall(file.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert sorted(named - known()) == []


def test_every_column_of_scrapes_has_a_spelling() -> None:
    assert all(CANONICAL.values())
