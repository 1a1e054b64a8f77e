"""docs/sources.md says of each column of spans and KV events what it can and cannot say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from telemetry.records import columns_of
from telemetry.source_records import EngineSpanRow, KvEventRow
from telemetry.sources.otlp import spans

PAGE = Path(__file__).parents[3] / "docs" / "sources.md"


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    assert found is not None
    return found[1]


def words_in_first_cells(text: str) -> set[str]:
    cells = (line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    return set(re.findall(r"`(\w+)`", " ".join(cells)))


@pytest.mark.parametrize(
    ("title", "row"), [("Traces (OTLP)", EngineSpanRow), ("KV events", KvEventRow)]
)
def test_every_column_is_told(title: str, row: type) -> None:
    columns = {column.name for column in columns_of(row)} - {"import_id"}
    assert words_in_first_cells(section(title)) == columns


def test_every_attribute_that_is_kept_is_named() -> None:
    text = section("Traces (OTLP)")
    for name in (*spans.KEPT, *spans.KEPT_OF_RESOURCE):
        last = name.rpartition(".")[2]
        assert last in text or name.startswith("gen_ai.latency."), name
