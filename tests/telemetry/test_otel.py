"""Spans as a tracing system gets them, through the SDK and its own in-memory exporter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from telemetry.exporters.otel import RequestSpanExporter
from telemetry.vocabulary import FinishReason
from tests.telemetry.log_builder import LogBuilder, connect, insert, records, truncate
from tests.telemetry.test_sql_preemptions import played

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BUSY = {
    "policy": "fcfs",
    "num_usable_blocks": 16,
    "block_size": 1,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 6,
}


class ConnectionLog:
    """A log that is a connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def query(self, sql: str) -> pa.Table:
        return self.connection.execute(sql).to_arrow_table()


class Traced:
    """A log, its exporter, and what arrived in memory."""

    def __init__(self, *logs: LogBuilder) -> None:
        self.connection = connect(*logs)
        self.memory = InMemorySpanExporter()
        self.processor = SimpleSpanProcessor(self.memory)
        self.exporter = RequestSpanExporter(ConnectionLog(self.connection), self.processor)

    def root(self) -> ReadableSpan:
        (root,) = [s for s in self.memory.get_finished_spans() if s.name == "llm_request"]
        return root


@pytest.fixture
def storm() -> Iterator[Traced]:
    """A run of the real scheduler in which requests evict each other."""
    run = played(BUSY, [(i, 4, 8, 0, None) for i in range(6)], 300)
    assert run.scheduler.num_preemptions > 5
    traced = Traced(LogBuilder.of_recorder(run.recorder).described())
    yield traced
    traced.processor.shutdown()


def one_request(**arrival: Any) -> LogBuilder:
    log = LogBuilder(engine=2**64 - 5).described(host="here").arrived(0, **arrival)
    return log.step().admitted(0).step().first_token(0).step().finished(0)


def test_the_spans_of_a_storm_equal_the_intervals_of_the_view(storm: Traced) -> None:
    storm.exporter.export_finished()
    exported = sorted(
        (span.name, span.start_time, span.end_time)
        for span in storm.memory.get_finished_spans()
        if span.name != "llm_request"
    )
    rows = records(storm.connection, "SELECT phase, start_ts, end_ts FROM request_intervals")
    assert exported == sorted((r["phase"], r["start_ts"], r["end_ts"]) for r in rows)
    assert "recompute" in {name for name, _, _ in exported}


def test_requests_last_from_arrival_to_end(storm: Traced) -> None:
    assert storm.exporter.export_finished() == 6
    roots = [s for s in storm.memory.get_finished_spans() if s.name == "llm_request"]
    rows = records(storm.connection, "SELECT ts, finished_ts FROM requests")
    assert sorted((s.start_time, s.end_time) for s in roots) == sorted(
        (row["ts"], row["finished_ts"]) for row in rows
    )


def test_ids_are_those_of_the_view(storm: Traced) -> None:
    storm.exporter.export_finished()
    exported = {
        (format(s.context.trace_id, "032x"), format(s.context.span_id, "016x"))
        for s in storm.memory.get_finished_spans()
    }
    rows = records(storm.connection, "SELECT trace_id, span_id FROM spans WHERE request >= 0")
    assert exported == {(row["trace_id"], row["span_id"]) for row in rows}


def test_each_request_is_exported_once_and_only_when_it_has_ended() -> None:
    running = one_request().arrived(1)
    traced = Traced(running)
    assert traced.exporter.export_finished() == 1
    assert traced.exporter.export_finished() == 0
    truncate(traced.connection)
    insert(traced.connection, running.step().aborted(1))
    assert traced.exporter.export_finished() == 1
    roots = [s for s in traced.memory.get_finished_spans() if s.name == "llm_request"]
    assert [s.attributes["stepscope.request"] for s in roots if s.attributes] == [0, 1]


def test_more_requests_than_a_batch_are_all_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.exporters.otel.BATCH", 3)
    log = LogBuilder()
    for number in range(10):
        log.arrived(number).step().aborted(number)
    assert Traced(log).exporter.export_finished() == 10


def test_a_new_exporter_goes_on_from_a_position() -> None:
    traced = Traced(one_request())
    traced.exporter.export_finished()
    position = traced.exporter.position
    heir = RequestSpanExporter(
        ConnectionLog(traced.connection), traced.processor, position=position
    )
    assert heir.export_finished() == 0


def test_a_callers_trace_is_continued() -> None:
    traced = Traced(one_request(trace_id=TRACE, parent_span_id=PARENT))
    traced.exporter.export_finished()
    root = traced.root()
    assert root.parent is not None
    assert (root.parent.trace_id, root.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    assert {s.context.trace_id for s in traced.memory.get_finished_spans()} == {int(TRACE, 16)}


def test_a_trace_without_a_parent_span_is_kept_too() -> None:
    traced = Traced(one_request(trace_id=TRACE))
    traced.exporter.export_finished()
    assert traced.root().parent is None
    assert traced.root().context.trace_id == int(TRACE, 16)


def test_children_hang_under_their_request() -> None:
    traced = Traced(one_request())
    traced.exporter.export_finished()
    children = [s for s in traced.memory.get_finished_spans() if s.name != "llm_request"]
    assert {s.parent.span_id for s in children if s.parent} == {traced.root().context.span_id}
    assert [s.name for s in children] == ["queued", "prefill", "decode"]


def test_attributes_are_those_of_the_view() -> None:
    traced = Traced(one_request(num_prompt_tokens=21))
    traced.exporter.export_finished()
    (row,) = records(traced.connection, "FROM spans WHERE name = 'llm_request'")
    attributes = dict(traced.root().attributes or {})
    attributes["gen_ai.response.finish_reasons"] = ["length"]
    assert attributes == json.loads(row["attributes"])
    assert attributes["gen_ai.usage.input_tokens"] == 21
    assert traced.root().kind is SpanKind.SERVER


def test_an_engine_is_a_resource() -> None:
    traced = Traced(one_request())
    traced.exporter.export_finished()
    resource = traced.root().resource.attributes
    assert resource["service.name"] == "stepscope"
    assert resource["service.instance.id"] == "fffffffffffffffb"
    assert (resource["host.name"], resource["stepscope.source"]) == ("here", "stepscope")


def test_a_request_that_failed_has_the_status_of_an_error() -> None:
    log = LogBuilder().arrived(0).step().finished(0, FinishReason.error)
    traced = Traced(log)
    traced.exporter.export_finished()
    assert traced.root().status.status_code is StatusCode.ERROR


def test_a_request_whose_arrival_was_dropped_is_counted_not_invented() -> None:
    traced = Traced(LogBuilder().step().finished(0))
    assert traced.exporter.export_finished() == 0
    assert traced.exporter.num_without_arrival == 1
    assert traced.memory.get_finished_spans() == ()


def test_engines_are_exported_side_by_side() -> None:
    other = LogBuilder(engine=4).arrived(0).step().aborted(0)
    traced = Traced(one_request(), other)
    assert traced.exporter.export_finished() == 2
    instances = {
        s.resource.attributes["service.instance.id"] for s in traced.memory.get_finished_spans()
    }
    assert instances == {"fffffffffffffffb", "0000000000000004"}
