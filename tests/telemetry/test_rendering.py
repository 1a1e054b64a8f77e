"""Rows as text: aligned, exact, and harmless whatever is in them."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from telemetry.rendering import (
    LONGEST_CELL,
    csv_text,
    json_text,
    printable,
    table_text,
    write_arrow,
    write_parquet,
)

ENGINE = (1 << 63) + 5


def table() -> pa.Table:
    return pa.table(
        {
            "engine": pa.array([ENGINE, None], pa.uint64()),
            "name": ["a\x1b[31mred\x07", "=cmd|' /C calc'!A0"],
            "count": pa.array([1, 200_000], pa.int64()),
            "ratio": [0.25, float("nan")],
            "nothing": pa.array([None, None], pa.string()),
            "sum": pa.array([Decimal(3), Decimal(4)], pa.decimal128(38, 0)),
        }
    )


def test_a_table_is_aligned_and_shows_null_as_a_dash() -> None:
    lines = table_text(table()).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split()[0] == "8000000000000005"
    assert lines[3].split()[0] == "–"
    assert " 200000 " in lines[3]


def test_a_terminal_gets_no_control_characters() -> None:
    text = table_text(table()).replace("\n", "")
    assert text.isprintable()
    assert "\\x1b[31mred\\x07" in text


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "\u202egnp.exe", "\u200b", "\x9b31m", "a\nb\tc"])
def test_what_would_move_the_cursor_or_deceive_is_escaped(text: str) -> None:
    assert printable(text).isprintable()
    assert "\\" in printable(text)


def test_ordinary_text_stays_as_it_is() -> None:
    assert printable("é → 日本 ok") == "é → 日本 ok"


def test_a_long_cell_is_cut_and_shows_it() -> None:
    line = table_text(pa.table({"a": ["x" * 1000]})).splitlines()[2]
    assert len(line) == LONGEST_CELL
    assert line.endswith("…")


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_csv_text_is_no_formula(start: str) -> None:
    text = csv_text(pa.table({"a": [start + "1+1"], "b": [-5]}))
    assert list(csv.reader(io.StringIO(text)))[1] == ["'" + start + "1+1", "-5"]


@pytest.mark.parametrize("start", ["\t", "\r", "\n", "\x1b"])
def test_csv_text_has_no_control_characters(start: str) -> None:
    lines = csv_text(pa.table({"a": [start + "=1+1"]})).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("\\")


def test_csv_leaves_null_empty_and_writes_engines_as_hex() -> None:
    first = next(csv.DictReader(io.StringIO(csv_text(table()))))
    assert first["engine"] == "8000000000000005"
    assert first["nothing"] == ""


def test_json_is_an_array_of_objects_that_any_reader_takes() -> None:
    rows = json.loads(json_text(table()), parse_constant=lambda _: pytest.fail("no NaN in JSON"))
    assert rows[0]["engine"] == "8000000000000005"
    assert rows[1]["ratio"] is None
    assert rows[0]["sum"] == 3
    assert list(rows[0]) == table().column_names


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_arrow_and_parquet_keep_the_number(form: str) -> None:
    out = io.BytesIO()
    (write_arrow if form == "arrow" else write_parquet)(table(), out)
    out.seek(0)
    read = pa.parquet.read_table(out) if form == "parquet" else pa.ipc.open_stream(out).read_all()
    assert read["engine"].to_pylist()[0] == ENGINE
