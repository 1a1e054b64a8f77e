"""The SDK's own exporters, as vLLM uses them, send to the listener and are content."""

from __future__ import annotations

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.telemetry.sources.otlp.conftest import Listening


def exporter(listening: Listening, protocol: str, *, packed: bool) -> SpanExporter:
    if protocol == "grpc":
        compression = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression
        return GrpcExporter(
            endpoint=f"http://{listening.grpc.address}", insecure=True, compression=compression
        )
    return HttpExporter(
        endpoint=listening.http.url,
        compression=Compression.Gzip if packed else Compression.NoCompression,
    )


def spans(number_of: int, scope: str = "vllm.tracing.otel") -> tuple[ReadableSpan, ...]:
    """Returns spans as vLLM makes them."""
    memory = InMemorySpanExporter()
    resource = Resource.create({"service.name": "chat", "vllm.process_id": "7"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for index in range(number_of):
        span = provider.get_tracer(scope).start_span("llm_request")
        span.set_attribute("gen_ai.request.id", f"cmpl-{index}")
        span.set_attribute("gen_ai.latency.time_in_queue", 0.25)
        span.end()
    provider.shutdown()
    return memory.get_finished_spans()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_spans_arrive(listening: Listening, protocol: str, packed: bool) -> None:
    sender = exporter(listening, protocol, packed=packed)
    for _ in range(3):
        assert sender.export(spans(5)) is SpanExportResult.SUCCESS
    sender.shutdown()
    rows = listening.rows.taken
    assert len(rows) == 15
    assert {(row["service"], row["queue_ns"]) for row in rows} == {("chat", 250_000_000)}
    assert {row["request_id"] for row in rows} == {f"cmpl-{index}" for index in range(5)}


def test_spans_of_others_are_taken_and_not_kept(listening: Listening) -> None:
    sender = exporter(listening, "grpc", packed=False)
    assert sender.export(spans(4, scope="stepscope")) is SpanExportResult.SUCCESS
    sender.shutdown()
    assert listening.rows.taken == []
    assert listening.intake.status() == "0 spans of vLLM, 4 of others, not kept"


def test_the_engine_is_described_once(listening: Listening) -> None:
    sender = exporter(listening, "http", packed=False)
    sender.export(spans(2))
    sender.export(spans(2))
    sender.shutdown()
    (day,) = listening.rows.take().values()
    (engine,) = day["engines"]
    assert engine["source"] == "vllm"
    assert {row["engine"] for row in day["engine_spans"]} == {engine["engine"]}
