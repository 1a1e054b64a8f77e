"""A real OTLP receiver: gRPC and HTTP servers that decode what came over the wire.

`Receiver` keeps decoded export requests; `Trace` puts the spans of one trace into a tree.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

PLAIN = {"string_value", "bool_value", "int_value", "double_value"}


@dataclass(frozen=True)
class Span:
    """A span as it came over the wire."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    start_ns: int
    end_ns: int
    kind: int
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: list[tuple[str, str]]

    @property
    def identity(self) -> tuple[str, str, str, int, int]:
        return (self.trace_id, self.span_id, self.parent_span_id, self.start_ns, self.end_ns)


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Receiver:
    """What arrived, in order. While `is_refusing`, nothing is taken.

    While `answers` is not set, nothing is answered.
    """

    endpoint: str = ""
    protocol: str = ""
    is_refusing: bool = False
    answers: threading.Event = field(default_factory=_set_event)
    num_refused: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    def take(self, request: Any, headers: dict[str, str]) -> bool:
        self.answers.wait()
        with self._news:
            if self.is_refusing:
                self.num_refused += 1
            else:
                self.requests.append(request)
                self.headers.append(headers)
            self._news.notify_all()
            return not self.is_refusing

    def wait_for(self, condition: Any, seconds: float = 30.0) -> None:
        with self._news:
            assert self._news.wait_for(condition, timeout=seconds), f"not so after {seconds} s"

    @property
    def spans(self) -> list[Span]:
        return [
            _span(span, attributes(resource_spans.resource.attributes))
            for request in list(self.requests)
            for resource_spans in getattr(request, "resource_spans", ())
            for scope in resource_spans.scope_spans
            for span in scope.spans
        ]

    def points(self, name: str) -> dict[tuple[str, ...], Any]:
        """Returns the newest points of a metric, by the values of their attributes."""
        return {
            tuple(str(value) for value in attributes(point.attributes).values()): point
            for metric in self.metrics()
            if metric.name == name
            for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        }

    def metrics(self) -> Iterator[Any]:
        for request in list(self.requests):
            for resource_metrics in getattr(request, "resource_metrics", ()):
                for scope in resource_metrics.scope_metrics:
                    yield from scope.metrics


def attributes(pairs: Sequence[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    assert kind in PLAIN, kind
    return getattr(value, kind)


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        kind=span.kind,
        status=span.status.code,
        attributes=attributes(span.attributes),
        resource=resource,
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
    )


# ------------------------------------------------------------------------------------------ gRPC


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        headers = dict(tuple(pair) for pair in context.invocation_metadata())
        if not self.receiver.take(request, headers):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not now")
        return trace_pb.ExportTraceServiceResponse()


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.receiver.take(request, {}):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not now")
        return metrics_pb.ExportMetricsServiceResponse()


@contextmanager
def grpc_receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    trace_grpc.add_TraceServiceServicer_to_server(_Traces(receiver), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(receiver), server)
    port = server.add_insecure_port("127.0.0.1:0")
    receiver.endpoint = f"http://127.0.0.1:{port}"
    server.start()
    try:
        yield receiver
    finally:
        receiver.answers.set()
        server.stop(None).wait()


# ------------------------------------------------------------------------------------------ HTTP

_PATHS = {
    "/v1/traces": (trace_pb.ExportTraceServiceRequest, trace_pb.ExportTraceServiceResponse),
    "/v1/metrics": (
        metrics_pb.ExportMetricsServiceRequest,
        metrics_pb.ExportMetricsServiceResponse,
    ),
}


@contextmanager
def http_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["Content-Type"] == "application/x-protobuf"
            kind, answer = _PATHS[self.path]
            request = kind()
            request.ParseFromString(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            is_taken = receiver.take(request, headers)
            self.send_response(200 if is_taken else 400)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(answer().SerializeToString() if is_taken else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        receiver.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()


# ------------------------------------------------------------------------------------- the tree


def roots_of(spans: Sequence[Span]) -> list[Span]:
    """Returns the spans whose parent is not among them."""
    ids = {span.span_id for span in spans}
    return [span for span in spans if span.parent_span_id not in ids]


def tree_text(spans: Sequence[Span], *, shown: Sequence[str] = ()) -> str:
    """Returns the spans as a tree: name, begin and duration in ms, chosen attributes."""
    begin = min(span.start_ns for span in spans)

    def line(span: Span, branch: str) -> str:
        start, length = (span.start_ns - begin) / 1e6, (span.end_ns - span.start_ns) / 1e6
        extra = "  ".join(
            f"{name.removeprefix('stepscope.')}={span.attributes[name]}"
            for name in shown
            if name in span.attributes
        )
        return f"{branch + span.name:<16} {start:>9.3f} {length:>9.3f}  {extra}".rstrip()

    def below(span: Span, indent: str) -> Iterator[str]:
        children = [s for s in spans if s.parent_span_id == span.span_id]
        children.sort(key=lambda s: (s.start_ns, s.end_ns))
        for child in children:
            is_last = child is children[-1]
            yield line(child, indent + ("└─ " if is_last else "├─ "))
            yield from below(child, indent + ("   " if is_last else "│  "))

    lines = [f"{'':<16} {'begins':>9} {'lasts ms':>9}"]
    for root in roots_of(spans):
        lines += [line(root, ""), *below(root, "")]
    return "\n".join(lines)
