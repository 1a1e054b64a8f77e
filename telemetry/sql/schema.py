"""The tables that the views read, as DuckDB knows them: types, and stand-ins for absent tables.

Knows nothing of files or connections' life; `telemetry.store` owns those.
"""

from __future__ import annotations

from collections.abc import Iterable

from telemetry.records import DENSE_TABLES, TABLES, Column

SQL_TYPES: dict[str, str] = {
    "u1": "UTINYINT",
    "u2": "USMALLINT",
    "u4": "UINTEGER",
    "u8": "UBIGINT",
    "i4": "INTEGER",
    "i8": "BIGINT",
    "f8": "DOUBLE",
    "bool": "BOOLEAN",
    "str": "VARCHAR",
    "u4[]": "UINTEGER[]",
}
"""DuckDB's type of each column type of the record."""

VOCABULARY_COLUMNS = "enum VARCHAR, code UTINYINT, name VARCHAR"
"""Columns of the lookup table `vocabulary`."""

BASE_TABLES: dict[str, tuple[Column, ...]] = {
    **TABLES,
    "step_requests": DENSE_TABLES["step_requests"],
}
"""Every table that the views may read, with its columns."""


def column_list(columns: Iterable[Column]) -> str:
    """Returns the columns as a table definition writes them."""
    return ", ".join(
        f'"{column.name}" {SQL_TYPES[column.dtype]}{"" if column.nullable else " NOT NULL"}'
        for column in columns
    )


def empty_select(columns: Iterable[Column]) -> str:
    """Returns a SELECT with these columns and no row, for a table that a log does not have."""
    fields = ", ".join(f'NULL::{SQL_TYPES[column.dtype]} AS "{column.name}"' for column in columns)
    return f"SELECT {fields} WHERE false"
