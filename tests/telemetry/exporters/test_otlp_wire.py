"""Spans and metrics on the wire: real receivers decode what the SDK's exporters sent them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from telemetry.exporters.otlp import Destination, find_destination, span_exporter
from tests.telemetry.exporters.receiver import (
    Receiver,
    Span,
    grpc_receiver,
    http_receiver,
    roots_of,
    tree_text,
)
from tests.telemetry.exporters.traced import Traced, one_request, storm_log
from tests.telemetry.log_builder import records

PROTOCOLS: dict[str, Callable[[], AbstractContextManager[Receiver]]] = {
    "grpc": grpc_receiver,
    "http/protobuf": http_receiver,
}


@pytest.fixture(params=PROTOCOLS)
def receiver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Yields a receiver that the environment names."""
    with PROTOCOLS[request.param]() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
        yield receiver


class OnTheWire(Traced):
    """A log whose spans go to the receiver that the environment names."""

    def restart(self) -> None:
        destination = find_destination("traces", os.environ)
        assert isinstance(destination, Destination)
        self.exporter = span_exporter(destination.protocol)
        super().restart()

    def _send(self, spans: Any) -> bool:
        return self.exporter.export(spans) is SpanExportResult.SUCCESS


@pytest.fixture
def sent(receiver: Receiver) -> Iterator[Callable[..., OnTheWire]]:
    """Yields what sends a log's spans."""
    opened: list[OnTheWire] = []

    def send(*logs: Any, **settings: Any) -> OnTheWire:
        traced = OnTheWire(*logs, **settings)
        opened.append(traced)
        assert traced.export.work()
        return traced

    yield send
    for traced in opened:
        traced.exporter.shutdown()


def expected(traced: Traced, view: str = "request_spans") -> set[tuple[Any, ...]]:
    """Returns what SQL says of every span: ids, parent and both times."""
    rows = records(traced.connection, f"FROM {view}")
    return {
        (
            r["name"],
            r["trace_id"],
            r["span_id"],
            r["parent_span_id"] or "",
            r["start_ns"],
            r["end_ns"],
        )
        for r in rows
    }


def test_the_tree_on_the_wire_is_sqls_to_the_nanosecond(
    receiver: Receiver, sent: Callable[..., OnTheWire]
) -> None:
    traced = sent(storm_log())
    told = [(span.name, *span.identity) for span in receiver.spans]
    assert set(told) == expected(traced)
    assert len(told) == len(set(told))


def test_every_child_hangs_under_a_root_of_its_trace(
    receiver: Receiver, sent: Callable[..., OnTheWire]
) -> None:
    sent(storm_log())
    roots = {root.span_id: root for root in roots_of(receiver.spans)}
    assert {root.name for root in roots.values()} == {"llm_request"}
    assert len(roots) == 6
    for span in receiver.spans:
        if span.span_id not in roots:
            root = roots[span.parent_span_id]
            assert span.trace_id == root.trace_id
            assert root.start_ns <= span.start_ns <= span.end_ns <= root.end_ns


def test_a_traceparent_is_the_parent_on_the_wire(
    receiver: Receiver, sent: Callable[..., OnTheWire]
) -> None:
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    sent(one_request(trace_id=trace, parent_span_id=parent))
    (root,) = roots_of(receiver.spans)
    assert (root.trace_id, root.parent_span_id) == (trace, parent)


def test_steps_link_to_requests_that_were_sent(
    receiver: Receiver, sent: Callable[..., OnTheWire]
) -> None:
    traced = sent(storm_log(), step_ratio=1.0)
    told = {(span.name, *span.identity) for span in receiver.spans}
    assert told == expected(traced, "spans")
    requests = {(s.trace_id, s.span_id) for s in receiver.spans if s.name == "llm_request"}
    links = {link for span in receiver.spans if span.name == "step" for link in span.links}
    assert links == requests


def test_headers_and_resource_come_from_the_environment(
    receiver: Receiver, sent: Callable[..., OnTheWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=chat,region=eu")
    sent(one_request())
    assert receiver.headers[0]["x-tenant"] == "blue"
    resource = receiver.spans[0].resource
    assert (resource["service.name"], resource["region"]) == ("chat", "eu")
    assert resource["stepscope.engine"] == "fffffffffffffffb"


def test_hostile_text_arrives_as_text(receiver: Receiver, sent: Callable[..., OnTheWire]) -> None:
    sent(one_request(request_id='"; DROP TABLE spans --\x00\x1b[31m<b>'))
    (root,) = [span for span in receiver.spans if span.name == "llm_request"]
    told = root.attributes["gen_ai.response.id"]
    assert told == '"; DROP TABLE spans --\\x00\\x1b[31m<b>'


def test_a_receiver_that_refuses_gets_the_same_again(
    receiver: Receiver, sent: Callable[..., OnTheWire]
) -> None:
    receiver.is_refusing = True
    traced = OnTheWire(one_request())
    assert not traced.export.work()
    assert (receiver.num_refused, receiver.spans) == (1, [])
    receiver.is_refusing = False
    assert traced.export.work()
    assert {(span.name, *span.identity) for span in receiver.spans} == expected(traced)
    traced.exporter.shutdown()


def test_a_tree_can_be_printed(receiver: Receiver, sent: Callable[..., OnTheWire]) -> None:
    sent(one_request())
    lines = tree_text(receiver.spans).splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["llm_request", "├─", "├─", "└─"]
    assert [line.split()[1] for line in lines[1:]] == ["queued", "prefill", "decode"]


def test_a_span_is_all_that_travels(receiver: Receiver, sent: Callable[..., OnTheWire]) -> None:
    """No text of a prompt could: the record has none. Names are ours or the conventions'."""
    sent(storm_log(), step_ratio=1.0)
    spans: list[Span] = receiver.spans
    names = {name for span in spans for name in span.attributes}
    assert {name.partition(".")[0] for name in names} <= {"gen_ai", "stepscope", "error"}
