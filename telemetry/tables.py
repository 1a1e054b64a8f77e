"""The tables that the rows of the record become, and DuckDB's types for their columns.

Only names and types: who creates the tables is `telemetry.store`, who reads them `telemetry.sql`.
"""

from __future__ import annotations

from collections.abc import Iterator

from telemetry.log_records import (
    ClockAnchorRow,
    DrainRow,
    ExportRow,
    FindingRow,
    HeartbeatRow,
    RemovedDayRow,
)
from telemetry.records import (
    EVENT_CLASSES,
    Column,
    EncoderItemScheduled,
    EngineRow,
    Event,
    RequestArrived,
    RequestFinished,
    SessionInputAdded,
    StepRequestRow,
    StepRow,
    columns_of,
)
from telemetry.source_records import (
    EngineSpanRow,
    ImportRow,
    KvEventRow,
    LogLineRow,
    SampleRow,
)

UNSTORED = "hashes"
"""The column type that passes through the ring and becomes no column of a table."""

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


def event_columns() -> Iterator[Column]:
    """Yields the columns of `request_events` but engine and seq: each event's numbers, once.

    Fields of classes with a table of their own are left to that table.
    """
    seen = set()
    for cls in EVENT_CLASSES:
        if cls.TABLE is not None:
            continue
        for col in columns_of(cls):
            if col.name not in seen and col.dtype != UNSTORED:
                seen.add(col.name)
                yield col


ENGINE = Column("engine", "u8", False, "engine start: 64 random bits")
ANY_ENGINE = Column("engine", "u8", True, "engine start; NULL for a silence of all engines")
SEQ = Column("seq", "u8", False, "order of the engine's events")
SLOT = Column("slot", "u4", False, "place in the step's scheduling order, from 0")


def _own_table(cls: type[Event]) -> tuple[Column, ...]:
    skipped = {"kind", "text"} if cls is not RequestFinished else {"kind"}
    columns = (col for col in columns_of(cls) if col.dtype != UNSTORED)
    return (ENGINE, SEQ, *(col for col in columns if col.name not in skipped))


TABLES: dict[str, tuple[Column, ...]] = {
    "engines": (ENGINE, *columns_of(EngineRow)),
    "clock_anchors": (ENGINE, *columns_of(ClockAnchorRow)),
    "heartbeats": (ENGINE, *columns_of(HeartbeatRow)),
    "drains": (ENGINE, *columns_of(DrainRow)),
    "steps": (ENGINE, *columns_of(StepRow)),
    "request_arrivals": _own_table(RequestArrived),
    "session_inputs": _own_table(SessionInputAdded),
    "request_finishes": _own_table(RequestFinished),
    "encoder_items": _own_table(EncoderItemScheduled),
    "request_events": (ENGINE, SEQ, *event_columns()),
    "samples": (ENGINE, *columns_of(SampleRow)),
    "log_lines": (ENGINE, *columns_of(LogLineRow)),
    "engine_spans": (ENGINE, *columns_of(EngineSpanRow)),
    "kv_events": (ENGINE, *columns_of(KvEventRow)),
    "imports": columns_of(ImportRow),
    "findings": (ANY_ENGINE, *columns_of(FindingRow)),
    "exports": (ENGINE, *columns_of(ExportRow)),
    "removed_days": columns_of(RemovedDayRow),
}
"""Columns of every table of `<day>.duckdb`."""

DENSE_TABLES: dict[str, tuple[Column, ...]] = {
    "step_requests": (
        ENGINE,
        Column("ts", "i8", False, "when the step began"),
        SLOT,
        *columns_of(StepRequestRow),
    ),
    "drains": (ENGINE, *columns_of(DrainRow)),
}
"""Columns of every table of `<day>.dense.duckdb`, which has its own read position."""
