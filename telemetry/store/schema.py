"""The record's columns as DuckDB tables.

Nothing here names a column: tables follow `tables.TABLES` and `tables.DENSE_TABLES`. No column
is NOT NULL and there are no indexes: rows come in time order, and zone maps prune.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from telemetry.records import NULLS, SCHEMA_VERSION, Column
from telemetry.tables import DENSE_TABLES, SQL_TYPES, TABLES, VOCABULARY_COLUMNS
from telemetry.vocabulary import VOCABULARIES


def tables_of(dense: bool) -> dict[str, tuple[Column, ...]]:
    """Returns the tables of a day's main file, or of its dense file."""
    return DENSE_TABLES if dense else TABLES


def create_tables(database: str, dense: bool) -> list[str]:
    """Returns the statements that make a file's tables, and add what an older file lacks."""
    statements = []
    for table, columns in tables_of(dense).items():
        body = ", ".join(f'"{c.name}" {SQL_TYPES[c.dtype]}' for c in columns)
        statements.append(f"CREATE TABLE IF NOT EXISTS {database}.{table} ({body})")
    statements += [
        f"CREATE TABLE IF NOT EXISTS {database}.schema_info (version UINTEGER)",
        f"INSERT INTO {database}.schema_info SELECT {SCHEMA_VERSION} WHERE NOT EXISTS "
        f"(FROM {database}.schema_info WHERE version = {SCHEMA_VERSION})",
        f"CREATE TABLE IF NOT EXISTS {database}.vocabulary ({VOCABULARY_COLUMNS})",
        f"INSERT INTO {database}.vocabulary FROM (VALUES {_vocabulary()}) new(enum, code, name) "
        f"WHERE NOT EXISTS (FROM {database}.vocabulary old "
        "WHERE old.enum = new.enum AND old.code = new.code)",
    ]
    return statements


def add_missing_columns(
    database: str, dense: bool, existing: Iterable[tuple[str, str]]
) -> list[str]:
    """Returns the statements that bring a file made by an older version up to this one.

    `existing` are its (table, column) pairs.
    """
    known = set(existing)
    return [
        f'ALTER TABLE {database}.{table} ADD COLUMN "{c.name}" {SQL_TYPES[c.dtype]}'
        for table, columns in tables_of(dense).items()
        for c in columns
        if (table, c.name) not in known
    ]


def _vocabulary() -> str:
    return ", ".join(
        f"('{enum}', {member.value}, '{member.name}')"
        for enum, members in VOCABULARIES.items()
        for member in members
    )


def insert_statement(
    database: str, table: str, columns: Iterable[Column], with_nulls: Container[str], source: str
) -> str:
    """Returns the statement that moves rows of a registered batch into a table.

    The batch keeps NULL as the ring does (`records.NULLS`, NaN, None); the table has real ones.
    """
    body = ", ".join(f'{_value(c, c.name in with_nulls)} AS "{c.name}"' for c in columns)
    return f"INSERT INTO {database}.{table} BY NAME SELECT {body} FROM {source}"


def _value(column: Column, has_nulls: bool) -> str:
    name = f'"{column.name}"'
    match column.dtype:
        case "str" | "u4[]":
            return f"{name}::{SQL_TYPES[column.dtype]}"
        case "bool":
            return f"nullif({name}, 255)::BOOLEAN"
        case _ if not has_nulls:
            return name
        case "f8":
            return f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END"
        case dtype:
            return f"nullif({name}, ({NULLS[dtype]})::{SQL_TYPES[dtype]})"
