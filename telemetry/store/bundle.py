"""A bundle as its reader sees it: one DuckDB file, from whoever.

What is read of it are tables of the record, and of those the columns that have the record's types.
Views, macros, generated columns and further tables that lie in the file are not looked at. The
instance has no access to any file but this one before the file is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from telemetry.errors import LogDamaged
from telemetry.log_records import BundleInfoRow
from telemetry.records import Column, columns_of
from telemetry.sql import create_views
from telemetry.sql.schema import BASE_TABLES, empty_select
from telemetry.store.guard import lock_down
from telemetry.store.lean import LEAN_TABLE, TABLE, create_lean_table, lean_columns, select_plain
from telemetry.store.schema import create_tables
from telemetry.tables import DENSE_TABLES, SQL_TYPES, VOCABULARY_COLUMNS

DATABASE = "bundle"
INFO_TABLE = "bundle_info"


def create_bundle_tables(database: str) -> list[str]:
    """Returns the statements that make the tables of a bundle."""
    info = ", ".join(f"{c.name} {SQL_TYPES[c.dtype]}" for c in columns_of(BundleInfoRow))
    return [
        *create_tables(database, dense=False),
        create_lean_table(database),
        f"CREATE TABLE {database}.{INFO_TABLE} ({info})",
    ]


def attach_bundle(connection: Any, path: Path, *, spill: Path) -> None:
    """Opens a bundle in an instance and puts the log's tables and views over it.

    Raises:
        LogDamaged: It is a DuckDB file, but no bundle.
        duckdb.Error: It is no DuckDB file.
    """
    absolute = os.path.abspath(path)
    quoted = absolute.replace("'", "''")
    connection.execute(f"SET allowed_paths = ['{quoted}', '{quoted}.wal']")
    lock_down(connection, spill=spill)
    connection.execute(f"ATTACH '{quoted}' AS {DATABASE} (READ_ONLY, TYPE duckdb)")
    stored = _stored_columns(connection)
    if not {(INFO_TABLE, "from_ts"), ("schema_info", "version")} <= stored.keys():
        raise LogDamaged(
            f"{path} is a DuckDB file but no bundle: make one with `stepscope bundle`, or name a "
            "log directory with --log"
        )
    tables = {**BASE_TABLES, "dense_drains": DENSE_TABLES["drains"]}
    for table, columns in tables.items():
        connection.execute(f"CREATE VIEW {table} AS {_select(table, columns, stored)}")
    connection.execute(f"CREATE VIEW schema_info AS SELECT version FROM {DATABASE}.schema_info")
    vocabulary = _columns_of_definition(VOCABULARY_COLUMNS)
    if _has_all("vocabulary", vocabulary, stored):
        names = ", ".join(c for c, _ in vocabulary)
        connection.execute(f"CREATE VIEW vocabulary AS SELECT {names} FROM {DATABASE}.vocabulary")
    create_views(connection)


def _stored_columns(connection: Any) -> dict[tuple[str, str], str]:
    """Returns the type of each (table, column) that holds values and computes nothing."""
    rows = connection.execute(
        "SELECT c.table_name, c.column_name, c.data_type FROM duckdb_columns() c "
        "JOIN duckdb_tables() t USING (database_name, schema_name, table_name) "
        f"WHERE c.database_name = '{DATABASE}' AND c.schema_name = 'main' "
        "AND c.column_default IS NULL"
    ).fetchall()
    return {(table, name): kind for table, name, kind in rows}


def _select(table: str, columns: tuple[Column, ...], stored: dict[tuple[str, str], str]) -> str:
    """Returns the SELECT of a table, NULL where the bundle does not have a column."""
    if table == TABLE and _has_all(LEAN_TABLE, lean_columns(), stored):
        return select_plain(DATABASE)
    types = {c.name: SQL_TYPES[c.dtype] for c in columns}
    sound = {name for name, kind in types.items() if stored.get((table, name)) == kind}
    if not sound:
        return empty_select(columns)
    body = ", ".join(
        f'"{name}"' if name in sound else f'NULL::{kind} AS "{name}"'
        for name, kind in types.items()
    )
    return f"SELECT {body} FROM {DATABASE}.main.{table}"


def _has_all(
    table: str, columns: Iterable[tuple[str, str]], stored: dict[tuple[str, str], str]
) -> bool:
    return all(stored.get((table, name)) == kind for name, kind in columns)


def _columns_of_definition(definition: str) -> list[tuple[str, str]]:
    parts = [part.split() for part in definition.split(", ")]
    return [(name, kind) for name, kind in parts]
