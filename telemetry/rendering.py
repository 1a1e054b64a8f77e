"""Rows of a query as text for a terminal, CSV and JSON.

Ids and names come from outside and are untrusted: control characters are shown as escapes, and
CSV text that a spreadsheet would run as a formula is quoted. Column `engine` is shown as 16 hex
digits, since JSON readers round numbers of 64 bits; Arrow and Parquet keep the number.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

LONGEST_CELL = 80
NOT_MEASURED = "–"


def table_text(table: pa.Table) -> str:
    """Returns rows as an aligned table; numbers to the right, NULL as a dash."""
    names = [printable(name) for name in table.column_names]
    columns = [
        [_short(_cell(value)) for value in values] for values in _values(table, _plain_value)
    ]
    is_number = [_is_number(field.type) for field in table.schema]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(names, columns, strict=True)]

    def line(cells: list[str]) -> str:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, is_number, strict=True)
        ]
        return "  ".join(padded).rstrip()

    rule = "  ".join("─" * width for width in widths)
    body = [line(list(row)) for row in zip(*columns, strict=True)]
    return "\n".join([line(names), rule, *body])


def csv_text(table: pa.Table) -> str:
    """Returns rows as CSV, NULL as an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_no_formula(name) for name in table.column_names])
    columns = _values(table, _plain_value)
    for row in zip(*columns, strict=True):
        writer.writerow([_csv_field(value) for value in row])
    return out.getvalue()


def json_text(table: pa.Table) -> str:
    """Returns rows as a JSON array of objects."""
    columns = list(_values(table, _plain_value))
    rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return json.dumps(rows, ensure_ascii=True, allow_nan=False, indent=1)


def write_arrow(table: pa.Table, to: BinaryIO) -> None:
    """Writes rows as an Arrow stream."""
    with pa.ipc.new_stream(to, table.schema) as stream:
        stream.write_table(table)


def write_parquet(table: pa.Table, to: BinaryIO) -> None:
    """Writes rows as a Parquet file."""
    pq.write_table(table, to)


def printable(text: str) -> str:
    """Returns text in which nothing moves the cursor, rings or turns the direction of reading."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def printable_lines(text: str) -> str:
    """Returns the same for a text of several lines, which stay lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def bytes_text(size: int) -> str:
    """Returns a size for people, in powers of 1,024."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.3g} {units[0]}" if amount < 1000 else f"{amount:,.0f} {units[0]}"


def engine_hex(engine: int) -> str:
    """Returns an engine's id as people see it."""
    return f"{engine:016x}"


def _values(table: pa.Table, convert: Callable[[Any], Any]) -> Iterator[list[Any]]:
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_pylist()
        if name == "engine" and pa.types.is_integer(column.type):
            yield [None if value is None else engine_hex(value) for value in values]
        else:
            yield [convert(value) for value in values]


def _plain_value(value: Any) -> Any:
    """Returns a value that JSON knows."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_plain_value(item) for item in value]
        case dict():
            return {str(name): _plain_value(item) for name, item in value.items()}
        case _:
            return str(value)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _cell(value: Any) -> str:
    match value:
        case None:
            return NOT_MEASURED
        case str():
            return printable(value)
        case float():
            return f"{value:.6g}"
        case list() | dict():
            return printable(json.dumps(value))
        case _:
            return str(value)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


def _csv_field(value: Any) -> Any:
    match value:
        case str():
            return _no_formula(value)
        case list() | dict():
            return json.dumps(value)
        case _:
            return value


def _no_formula(text: str) -> str:
    """Returns printable text that a spreadsheet takes as text."""
    text = printable(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
