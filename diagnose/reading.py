"""The little that diagnosis asks of a log, and how it asks.

Statements carry their numbers as literals, never as parameters: what is printed as a finding's SQL
is then the very statement that was run, ready to be pasted into `stepscope query`. Only integers
are ever put in; a text from outside never is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

NS = 1_000_000_000
"""Nanoseconds in a second."""


class QueryLog(Protocol):
    """A step log that answers SQL: `telemetry.store.Log`, or a test's own connection."""

    def query(self, sql: str, params: Any = None) -> Any:
        """Returns a `pyarrow.Table`."""


@runtime_checkable
class HoldingLog(Protocol):
    """A log that can work out once what is asked again and again."""

    def hold_views(self) -> None:
        """Makes later answers quicker; none of them changes."""


def hold_views(log: QueryLog) -> None:
    """Tells a log that much will be asked of it, where it can make use of that."""
    if isinstance(log, HoldingLog):
        log.hold_views()


@dataclass(frozen=True, slots=True)
class Scope:
    """One engine and a stretch of time, both ends included (ns since the Unix epoch)."""

    engine: int
    start_ts: int
    end_ts: int

    @property
    def duration_ns(self) -> int:
        """Length of the stretch."""
        return self.end_ts - self.start_ts

    def where(self, column: str = "ts") -> str:
        """Returns the SQL condition that a row lies in it."""
        return f"engine = {self.engine} AND {column} BETWEEN {self.start_ts} AND {self.end_ts}"

    def fill(self, template: str) -> str:
        """Returns a statement with `{where}`, `{engine}`, `{start}`, `{end}` filled in."""
        filled = template.format(
            where=self.where(), engine=self.engine, start=self.start_ts, end=self.end_ts
        )
        return filled.strip()


def read_rows(log: QueryLog, sql: str) -> list[dict[str, Any]]:
    """Returns the rows of a statement as dictionaries."""
    rows: list[dict[str, Any]] = log.query(sql).to_pylist()
    return rows


def read_row(log: QueryLog, sql: str) -> dict[str, Any]:
    """Returns the one row of an aggregate."""
    return read_rows(log, sql)[0]
