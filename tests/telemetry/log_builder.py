"""Builds step logs by hand, for tests of the views and of whatever reads them.

    log = LogBuilder()
    log.arrived(0, num_prompt_tokens=32).step(num_running=1).admitted(0).first_token(0)
    log.step(num_running=0, num_waiting=1).preempted(0, lost=40, beneficiary=1)
    connection = connect(log)

Time moves by `step()` and `advance()` alone; an event takes the current step and moment unless it
is told others. `arrived` and `aborted` happen between steps: they carry the next step's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from enum import IntEnum
from typing import Any, Self

import duckdb
import pyarrow as pa

from telemetry.collector.prefix_tree import PrefixTree
from telemetry.recorder import ListRecorder
from telemetry.records import Column, StepRequests
from telemetry.sql import create_views
from telemetry.sql.schema import BASE_TABLES, column_list
from telemetry.tables import VOCABULARY_COLUMNS
from telemetry.vocabulary import (
    VOCABULARIES,
    EventKind,
    FinishReason,
    PreemptionCause,
    SkipReason,
    VictimRule,
)

START = 1_764_417_318_848_000_000
"""2025-11-29 11:55:18.848 UTC, in ns since the Unix epoch."""
MS = 1_000_000
"""Nanoseconds of a millisecond."""

_ARROW_TYPES: dict[str, pa.DataType] = {
    "u1": pa.uint8(),
    "u2": pa.uint16(),
    "u4": pa.uint32(),
    "u8": pa.uint64(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "f8": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.string(),
    "u4[]": pa.list_(pa.uint32()),
}


class LogBuilder:
    """The rows of one engine start, in the order they happen."""

    def __init__(self, engine: int = 1, *, start: int = START, step_ns: int = 10 * MS) -> None:
        self.engine = engine
        self.step_ns = step_ns
        self.now = start
        """The moment that the next row gets."""
        self.current_step = -1
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in BASE_TABLES}
        self._seq = 0
        self._num_preemptions: dict[int, int] = {}

    @classmethod
    def of_recorder(cls, recorder: ListRecorder, engine: int = 1) -> LogBuilder:
        """Returns what a recorder took down, as the collector would have stored it."""
        log = cls(engine)
        for row in recorder.engines:
            log._add("engines", asdict(row))
        moments = {}
        for step in recorder.steps:
            moments[step.step] = step.ts
            log._add("steps", _columns_of(step))
        prefixes = PrefixTree()
        for seq, event in enumerate(recorder.events):
            table = event.TABLE or "request_events"
            known = {column.name for column in BASE_TABLES[table]}
            columns = {name: v for name, v in _columns_of(event).items() if name in known}
            hashes = getattr(event, "prefix_hashes", None)
            if hashes is not None and event.request is not None:
                contents = getattr(event, "content_hashes", None)
                columns |= prefixes.share(seq, event.request, hashes, contents).columns()
            log._event(table, columns)
        for number, dense in recorder.step_requests:
            for row in _dense_rows(dense):
                log._add("step_requests", {"step": number, "ts": moments[number]} | row)
        return log

    def advance(self, ns: int) -> Self:
        """Lets `ns` nanoseconds pass."""
        self.now += ns
        return self

    def described(self, **columns: Any) -> Self:
        """The engine says what it is; the defaults are a small pool on a CPU."""
        defaults = {
            "started_ts": self.now,
            "source": "stepscope",
            "version": "0.1.0",
            "model": "tiny-llama",
            "policy": "fcfs",
            "block_size": 16,
            "num_usable_blocks": 63,
            "max_num_seqs": 32,
            "max_num_batched_tokens": 2048,
            "max_num_scheduled_tokens": 2048,
            "max_model_len": 1024,
        }
        return self._add("engines", defaults | columns)

    def step(
        self, *, requests: Iterable[Mapping[str, Any]] = (), step: int | None = None, **columns: Any
    ) -> Self:
        """A step begins (`step_ns` after the one before); `requests` are its dense rows in order.

        `stop_reason` and `zero_reason` may be enum members. `updated_ts` is 9/10 of a step later.
        """
        if self.current_step >= 0:
            self.now += self.step_ns
        self.current_step = self.current_step + 1 if step is None else step
        own = {"step": self.current_step, "ts": self.now}
        defaults = {"updated_ts": self.now + self.step_ns * 9 // 10, "num_repeats": 1}
        self._add("steps", defaults | own | columns)
        for slot, row in enumerate(requests):
            self._add("step_requests", own | {"slot": slot} | dict(row))
        return self

    def arrived(self, request: int, **columns: Any) -> Self:
        """A request is added before the next step."""
        defaults = {
            "step": self.current_step + 1,
            "request_id": f"req-{request}",
            "num_prompt_tokens": 16,
            "max_tokens": 16,
            "priority": 0,
            "arrival_time": self.now / 1e9,
            "reads_cache": True,
        }
        return self._event("request_arrivals", defaults | {"request": request} | columns)

    def admitted(self, request: int, **columns: Any) -> Self:
        return self.event(EventKind.admitted, request, **columns)

    def resumed(self, request: int, *, hit: int | None = None, **columns: Any) -> Self:
        """A preempted request runs again, with `hit` tokens from the prefix cache."""
        return self.event(EventKind.resumed, request, num_hit_tokens=hit, **columns)

    def skipped(self, request: int, reason: SkipReason, **columns: Any) -> Self:
        return self.event(EventKind.skipped, request, reason=reason, **columns)

    def first_token(self, request: int, **columns: Any) -> Self:
        return self.event(EventKind.first_token, request, **columns)

    def caught_up(self, request: int, **columns: Any) -> Self:
        return self.event(EventKind.caught_up, request, **columns)

    def preempted(
        self, request: int, *, lost: int = 0, beneficiary: int | None = None, **columns: Any
    ) -> Self:
        """A request loses `lost` computed tokens to `beneficiary` (to itself when None)."""
        nth = self._num_preemptions[request] = self._num_preemptions.get(request, 0) + 1
        itself = beneficiary is None or beneficiary == request
        defaults = {
            "cause": PreemptionCause.kv_full,
            "victim_rule": VictimRule.itself if itself else VictimRule.running_tail,
            "beneficiary": request if beneficiary is None else beneficiary,
            "beneficiary_allocated": 0 if itself else 1,
            "victim_priority": 0,
            "beneficiary_priority": 0,
            "num_blocks_needed": 1,
            "num_blocks_free_before": 0,
            "num_blocks_freed": max(1, lost // 16),
            "num_blocks_deferred": 0,
            "num_computed_tokens_lost": lost,
            "num_in_flight_tokens": 0,
            "was_prefill": 0,
            "nth": nth,
        }
        return self.event(EventKind.preempted, request, **(defaults | columns))

    def finished(
        self, request: int, reason: FinishReason = FinishReason.length, **columns: Any
    ) -> Self:
        """A request ends in the update of the current step."""
        defaults = {
            "request": request,
            "reason": reason,
            "num_output_tokens": 16,
            "num_preemptions": self._num_preemptions.get(request, 0),
        }
        return self._event("request_finishes", defaults | columns)

    def aborted(self, request: int, **columns: Any) -> Self:
        """A request's client leaves before the next step."""
        own = {"step": self.current_step + 1} | columns
        return self.finished(request, FinishReason.abort_client, **own)

    def event(self, kind: EventKind, request: int | None = None, **columns: Any) -> Self:
        """Any other event, in the current step and at this moment unless told otherwise."""
        return self._event("request_events", {"kind": kind, "request": request} | columns)

    def heartbeat(self, **columns: Any) -> Self:
        return self._add("heartbeats", {"ts": self.now, "step": self.current_step} | columns)

    def _event(self, table: str, columns: Mapping[str, Any]) -> Self:
        """Adds an event; one with a table of its own has a row in `request_events` as well."""
        row = {"seq": self._seq, "step": max(self.current_step, 0), "ts": self.now} | dict(columns)
        self._seq += 1
        if table != "request_events":
            shared = {name: row[name] for name in _SHARED_COLUMNS if name in row}
            self._add("request_events", {"kind": _KIND_OF_TABLE[table]} | shared)
        return self._add(table, row)

    def _add(self, table: str, columns: Mapping[str, Any]) -> Self:
        known = {column.name for column in BASE_TABLES[table]}
        unknown = set(columns) - known
        if unknown:
            raise ValueError(f"{table} has no column {sorted(unknown)}: see telemetry.records")
        self.rows[table].append({"engine": self.engine} | dict(columns))
        return self


_SHARED_COLUMNS = ("seq", "step", "ts", "request", "reason", "text", "num_steps_in_flight")
_KIND_OF_TABLE = {
    "request_arrivals": EventKind.arrived,
    "request_finishes": EventKind.finished,
    "encoder_items": EventKind.item_scheduled,
    "session_inputs": EventKind.input_added,
}


def _columns_of(row: Any) -> dict[str, Any]:
    """Returns a row's columns; unlike `asdict` it does not copy what is in them."""
    return {f.name: getattr(row, f.name) for f in fields(row)}


def _dense_rows(dense: StepRequests) -> list[dict[str, Any]]:
    columns = {f.name: getattr(dense, f.name) for f in fields(dense)}
    listed = {name: array.tolist() for name, array in columns.items() if array is not None}
    rows = [dict(zip(listed, row, strict=True)) for row in zip(*listed.values(), strict=True)]
    for slot, row in enumerate(rows):
        row["slot"] = slot
        row["zero_reason"] = None if row.get("zero_reason") == 255 else row.get("zero_reason")
    return rows


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates every base table, empty, and the filled `vocabulary`."""
    for name, columns in BASE_TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({column_list(columns)})")
    connection.execute(f"CREATE TABLE vocabulary ({VOCABULARY_COLUMNS})")
    codes = [
        (enum, int(member), member.name) for enum, cls in VOCABULARIES.items() for member in cls
    ]
    connection.executemany("INSERT INTO vocabulary VALUES (?, ?, ?)", codes)


def insert(
    connection: duckdb.DuckDBPyConnection,
    *builders: LogBuilder,
    tables: Iterable[str] | None = None,
) -> None:
    """Inserts the builders' rows into the base tables, all or those that are named."""
    for name in BASE_TABLES if tables is None else tables:
        columns = BASE_TABLES[name]
        rows = [row for builder in builders for row in builder.rows[name]]
        if rows:
            connection.register("new_rows", _arrow(rows, columns))
            connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM new_rows")
            connection.unregister("new_rows")


def truncate(connection: duckdb.DuckDBPyConnection) -> None:
    """Empties every base table but `vocabulary`."""
    for name in BASE_TABLES:
        connection.execute(f"DELETE FROM {name}")


def connect(*builders: LogBuilder) -> duckdb.DuckDBPyConnection:
    """Returns an in-memory log with the builders' rows, and the views on it."""
    connection = duckdb.connect()
    create_tables(connection)
    insert(connection, *builders)
    create_views(connection)
    return connection


def records(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    """Returns the rows of a query as dicts."""
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _arrow(rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> pa.Table:
    schema = pa.schema([(column.name, _ARROW_TYPES[column.dtype]) for column in columns])
    return pa.Table.from_pylist([_plain(row) for row in rows], schema=schema)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: int(v) if isinstance(v, IntEnum) else v for name, v in row.items()}
