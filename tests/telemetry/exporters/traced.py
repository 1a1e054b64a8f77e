"""A log in memory, an exporter of its spans, and what arrived: no wire, all else is real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry.exporters.excerpt import arrow_table
from telemetry.exporters.span_export import SpanExport
from tests.telemetry.log_builder import LogBuilder, connect, insert, truncate
from tests.telemetry.test_sql_preemptions import played

BUSY = {
    "policy": "fcfs",
    "num_usable_blocks": 16,
    "block_size": 1,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 6,
}
ENGINE = 2**64 - 5


class ConnectionLog:
    """A log that is a connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def query(self, sql: str) -> pa.Table:
        return arrow_table(self.connection, sql)


class Traced:
    """While `is_down`, the receiver takes nothing."""

    def __init__(self, *logs: LogBuilder, **settings: Any) -> None:
        self.connection = connect(*logs)
        self.memory = InMemorySpanExporter()
        self.is_down = False
        self.sizes: list[int] = []
        """Spans of each message that was tried."""
        self.now = 0
        self.settings = settings
        self._drained(logs)
        self.restart()

    def restart(self) -> None:
        """Begins anew with what the log says."""
        self.export = SpanExport(
            ConnectionLog(self.connection), self._send, now=lambda: self.now, **self.settings
        )

    def _send(self, spans: Sequence[ReadableSpan]) -> bool:
        self.sizes.append(len(spans))
        return not self.is_down and self.memory.export(spans) is SpanExportResult.SUCCESS

    def becomes(self, *logs: LogBuilder) -> None:
        """The log goes on."""
        exports = self.connection.execute("FROM exports").fetchall()
        truncate(self.connection)
        insert(self.connection, *logs)
        self.connection.executemany("INSERT INTO exports VALUES (?, ?, ?, ?)", exports or [[0] * 4])
        self._drained(logs)

    def _drained(self, logs: Sequence[LogBuilder]) -> None:
        for log in logs:
            self.now = max([self.now, log.now, *(row["ts"] for row in log.rows["request_events"])])
            self.connection.execute(
                "INSERT INTO drains BY NAME SELECT ?::UBIGINT AS engine, ?::BIGINT AS ts, "
                "0 AS num_commits, 0 AS num_steps, 0 AS num_events, 0 AS num_step_requests, "
                "0 AS description, false AS closed",
                [log.engine, self.now],
            )

    def save(self) -> None:
        """Writes into the log how far was exported, as the collector does."""
        rows = self.export.unsaved()
        for row in rows:
            self.connection.execute("DELETE FROM exports WHERE engine = ?", [row["engine"]])
            values = [row[name] for name in ("engine", "ts", "next_event", "next_step")]
            self.connection.execute("INSERT INTO exports VALUES (?, ?, ?, ?)", values)
        self.export.saved(rows)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """What arrived, in order."""
        return self.memory.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def requests(self) -> list[Any]:
        """Returns the requests whose spans arrived, in order."""
        return [attribute(root, "stepscope.request") for root in self.named("llm_request")]

    def root(self) -> ReadableSpan:
        (root,) = self.named("llm_request")
        return root


def attribute(span: ReadableSpan, name: str) -> Any:
    return dict(span.attributes or {}).get(name)


def span_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return format(span.context.span_id, "016x")


def one_request(**arrival: Any) -> LogBuilder:
    log = LogBuilder(engine=ENGINE).described(host="here", pid=41).arrived(0, **arrival)
    return log.step().admitted(0).step().first_token(0).step().finished(0)


def storm_log() -> LogBuilder:
    """A run of the real scheduler in which requests evict each other."""
    run = played(BUSY, [(i, 4, 8, 0, None) for i in range(6)], 300)
    assert run.scheduler.num_preemptions > 5
    return LogBuilder.of_recorder(run.recorder).described()
