"""One table out of the files of many days, in the instance that reads them.

Views live in the reading instance only and are never stored in a file, so a log from a stranger
brings none along.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from telemetry.sql import create_views
from telemetry.store.files import DayFile
from telemetry.store.lean import LEAN_TABLE, select_plain
from telemetry.store.lean import TABLE as DENSE_TABLE
from telemetry.store.schema import create_tables, tables_of

_TEMPLATE = "nothing_yet"


def create_log_views(connection: Any, files: Iterable[DayFile]) -> None:
    """Makes each table of the record a view over all attached days, then the library's views."""
    files = list(files)
    present = _present(connection)
    connection.execute(f"CREATE SCHEMA {_TEMPLATE}")
    for dense in (False, True):
        for statement in create_tables(f"memory.{_TEMPLATE}", dense):
            connection.execute(statement)
        databases = [file.database for file in files if file.dense is dense]
        for table in tables_of(dense):
            having = [database for database in databases if (database, table) in present]
            name = f"dense_{table}" if dense and table == "drains" else table
            lean = [select_plain(d) for d in databases if (d, LEAN_TABLE) in present]
            more = lean if table == DENSE_TABLE else []
            connection.execute(f"CREATE VIEW {name} AS {_union(table, having, more)}")
    _create_lookups(connection, [file.database for file in files])
    create_views(connection)


def _present(connection: Any) -> set[tuple[str, str]]:
    """Returns which file has which table: a day that an older version wrote lacks newer ones."""
    return set(
        connection.execute("SELECT database_name, table_name FROM duckdb_tables()").fetchall()
    )


def _union(table: str, databases: list[str], more: list[str]) -> str:
    parts = [f"FROM memory.{_TEMPLATE}.{table}"]
    if table == "engines":
        return _newest_engines(databases)
    parts += [f"FROM {database}.{table}" for database in databases]
    return " UNION ALL BY NAME ".join(parts + more)


def _newest_engines(databases: list[str]) -> str:
    """Each day's file describes its engines; one that ran past midnight counts once.

    The newest description counts, but one without settings never before one that has them: a part
    of a log file may lack the engine's start, which another part holds.
    """
    parts = [f"SELECT *, '' AS day FROM memory.{_TEMPLATE}.engines"]
    parts += [f"SELECT *, '{database}' AS day FROM {database}.engines" for database in databases]
    union = " UNION ALL BY NAME ".join(parts)
    return (
        f"SELECT * EXCLUDE (day) FROM ({union}) "
        "QUALIFY row_number() OVER "
        "(PARTITION BY engine ORDER BY settings IS NULL, day DESC, started_ts DESC) = 1"
    )


def _create_lookups(connection: Any, databases: list[str]) -> None:
    for table in ("vocabulary", "schema_info"):
        parts = [f"FROM {name}.{table}" for name in (f"memory.{_TEMPLATE}", *databases)]
        connection.execute(f"CREATE VIEW {table} AS {' UNION BY NAME '.join(parts)}")
