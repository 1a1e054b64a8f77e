"""A few rows of the log in an instance of their own, with the library's views over them.

A view of the library looks at the whole log to tell the life of one request. An excerpt holds the
rows that matter and asks the same view, so the answer is the same and costs the same in a log of an
hour and of a month.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from telemetry.exporters.totals import LogReader
from telemetry.sql import create_views
from telemetry.sql.schema import BASE_TABLES
from telemetry.store.schema import create_tables

if TYPE_CHECKING:
    import pyarrow as pa


class Excerpt:
    """Tables of the record, empty but inside `holding`."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        for dense in (False, True):
            for statement in create_tables("memory.main", dense):
                self._connection.execute(statement)
        create_views(self._connection)

    @contextmanager
    def holding(self, tables: Mapping[str, pa.Table]) -> Iterator[Excerpt]:
        """Holds these rows for a while; afterwards nothing of them is left, in memory either."""
        self._connection.execute("BEGIN TRANSACTION")
        try:
            for table, rows in tables.items():
                self._connection.register("new_rows", rows)
                self._connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")
                self._connection.unregister("new_rows")
            yield self
        finally:
            self._connection.execute("ROLLBACK")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Returns the rows of a statement."""
        rows: list[dict[str, Any]] = arrow_table(self._connection, sql).to_pylist()
        return rows


def arrow_table(connection: Any, sql: str) -> pa.Table:
    """Returns the rows of a statement; a relation, since 2.x copies what was executed once more."""
    return connection.sql(sql).to_arrow_table()


def table_rows(log: LogReader, table: str, where: str) -> pa.Table:
    """Returns rows of a table of the record, with the columns that this version knows."""
    columns = ", ".join(f'"{column.name}"' for column in BASE_TABLES[table])
    return log.query(f"SELECT {columns} FROM {table} WHERE {where}")


def listed(numbers: Sequence[int]) -> str:
    """Returns numbers as an IN takes them."""
    return ", ".join(map(str, numbers))
