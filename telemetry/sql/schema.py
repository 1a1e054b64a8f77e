"""The tables that the views read, as DuckDB knows them: types, and stand-ins for absent tables.

Knows nothing of files or connections' life; `telemetry.store` owns those.
"""

from __future__ import annotations

from collections.abc import Iterable

from telemetry.records import Column
from telemetry.tables import DENSE_TABLES, SQL_TYPES, TABLES

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
