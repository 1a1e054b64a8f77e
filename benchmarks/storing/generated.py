"""A long log out of a short one: its rows again and again, later each time.

Copies are made by DuckDB inside the files, table by table, whatever their layout: a column `ts`,
`step`, `seq` or `request` moves on with each copy, all others repeat. So a log of a day takes
minutes to make, and lies on disk as one that grew: in time order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from benchmarks.storing.drain import MEMORY_LIMIT
from telemetry.store.files import attach, day_files

MOVING = ("ts", "updated_ts", "step", "seq", "request")
"""Columns that move on."""
_SINGLE = frozenset({"engines", "drains", "exports"})
"""Tables with one row an engine."""


def grow(log: Path, *, num_copies: int, span_ns: int) -> None:
    """Adds `num_copies` copies of all rows of a closed log, each `span_ns` later than the last."""
    connection = duckdb.connect(config={"memory_limit": MEMORY_LIMIT})
    try:
        for file in day_files(log):
            attach(connection, file, read_only=False)
        tables = _tables(connection)
        spans = _spans(connection, tables, span_ns)
        for table, names in tables.items():
            _grow_table(connection, table, spans, names, num_copies)
        for file in day_files(log):
            connection.execute(f"CHECKPOINT {file.database}")
    finally:
        connection.close()


def _tables(connection: Any) -> dict[str, list[str]]:
    """Returns the columns of every table that grows, by its qualified name."""
    tables: dict[str, list[str]] = {}
    for database, table, column in connection.execute(
        "SELECT database_name, table_name, column_name FROM duckdb_columns() "
        "WHERE schema_name = 'main' AND NOT internal AND database_name NOT IN ('memory', 'temp') "
        "ORDER BY ALL"
    ).fetchall():
        if table not in _SINGLE:
            tables.setdefault(f"{database}.{table}", []).append(column)
    return {table: names for table, names in tables.items() if "ts" in names}


def _spans(connection: Any, tables: dict[str, list[str]], span_ns: int) -> dict[str, int]:
    """Returns by how much each column moves with a copy: alike in all tables, so that they join."""
    spans = dict.fromkeys(MOVING, 0)
    for table, names in tables.items():
        has_steps = "num_repeats" in names
        for column in (name for name in MOVING if name in names):
            if column == "step" and not has_steps:  # what comes between steps has the next one's
                continue
            value = "step + num_repeats - 1" if column == "step" else f'"{column}"'
            (last,) = connection.execute(f"SELECT max({value}) FROM {table}").fetchone()
            spans[column] = max(spans[column], 0 if last is None else last + 1)
    return spans | {"ts": span_ns, "updated_ts": span_ns}


def _grow_table(
    connection: Any, table: str, spans: dict[str, int], names: list[str], num_copies: int
) -> None:
    connection.execute(f"CREATE TEMP TABLE first_copy AS FROM {table}")
    moving = [name for name in MOVING if name in names]
    for number in range(1, num_copies + 1):
        moved = ", ".join(f'"{name}" + {spans[name] * number} AS "{name}"' for name in moving)
        connection.execute(f"INSERT INTO {table} SELECT * REPLACE ({moved}) FROM first_copy")
    connection.execute("DROP TABLE first_copy")
