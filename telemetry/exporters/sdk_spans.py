"""Spans of the OpenTelemetry SDK out of rows that say when they began and ended.

The SDK samples, bounds and describes them as its standard environment variables say
(`OTEL_TRACES_SAMPLER`, `OTEL_SPAN_LINK_COUNT_LIMIT`, `OTEL_RESOURCE_ATTRIBUTES`, ...); ids and
times are those of the log. Each engine start is a resource of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from telemetry.exporters.attributes import attributes
from telemetry.exporters.totals import LogReader
from telemetry.rendering import engine_hex

SERVICE_NAME = "stepscope"
"""The service where neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES names one."""
MOST_ENGINES = 64
"""Engines whose resources are kept at hand."""

_ENGINE = """
SELECT host, pid, version, source, model, role, dp_rank FROM engines
WHERE engine = {engine}::UBIGINT LIMIT 1
"""
_CONTEXTS = """
SELECT request, request_trace_id(engine, request, trace_id) AS trace_id,
  request_span_id(engine, request) AS span_id
FROM request_arrivals
WHERE engine = {engine}::UBIGINT AND request IN ({listed})
"""

Row = Mapping[str, Any]
"""A row of the view `spans`: name, ids in hex, start_ns, end_ns; `attributes` is a mapping here,
and `links`, where there are any, are the SDK's."""


class SpanMaker:
    """Makes spans and keeps them until they are taken."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._gathered = _Gathered()
        self._tracers: OrderedDict[int, tuple[Tracer, _RecordedIds]] = OrderedDict()

    def make(
        self,
        engine: int,
        root: Row,
        children: Sequence[Row],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        """Makes a span and its children; the root ends last, as a live one would.

        A span that has no end, since it was open when its root ended, ends there.
        """
        tracer, ids = self._tracer(engine)
        ids.announce(root)
        known = attributes(root["attributes"])
        span = tracer.start_span(
            root["name"],
            context=_context_of_caller(root),
            kind=kind,
            attributes=known,
            links=root.get("links", ()),
            start_time=root["start_ns"],
        )
        within = set_span_in_context(span, Context())
        for child in children:
            ids.announce(child)
            tracer.start_span(
                child["name"],
                context=within,
                attributes=attributes(child["attributes"]),
                links=child.get("links", ()),
                start_time=child["start_ns"],
            ).end(_end(child, root))
        if "error.type" in known:
            span.set_status(Status(StatusCode.ERROR, str(known["error.type"])))
        span.end(_end(root, root))

    def take(self) -> list[ReadableSpan]:
        """Returns the spans made since the last call; those that were not sampled are not here."""
        return self._gathered.take()

    def _tracer(self, engine: int) -> tuple[Tracer, _RecordedIds]:
        if engine in self._tracers:
            self._tracers.move_to_end(engine)
            return self._tracers[engine]
        ids = _RecordedIds()
        provider = TracerProvider(
            resource=engine_resource(self._log, engine), id_generator=ids, shutdown_on_exit=False
        )
        provider.add_span_processor(self._gathered)
        self._tracers[engine] = (provider.get_tracer("stepscope"), ids)
        if len(self._tracers) > MOST_ENGINES:
            self._tracers.popitem(last=False)
        return self._tracers[engine]


def engine_resource(log: LogReader, engine: int) -> Resource:
    """Returns what is known of an engine, under the names of the conventions.

    What the environment says of the resource counts for more.
    """
    known: dict[str, Any] = {
        "service.name": SERVICE_NAME,
        "service.instance.id": engine_hex(engine),
        "stepscope.engine": engine_hex(engine),
    }
    for row in log.query(_ENGINE.format(engine=engine)).to_pylist():
        known |= {
            "service.version": row["version"],
            "host.name": row["host"],
            "process.pid": row["pid"],
            "stepscope.source": row["source"],
            "stepscope.model": row["model"],
            "stepscope.role": row["role"],
            "stepscope.dp_rank": row["dp_rank"],
        }
    return resource_of(known)


def resource_of(known: Mapping[str, Any]) -> Resource:
    """Returns a resource of these attributes and, above them, those of the environment."""
    return Resource.create(attributes(known)).merge(OTELResourceDetector().detect())


def span_context(
    trace_id: str, span_id: str, *, is_remote: bool = False, is_sampled: bool = True
) -> SpanContext:
    """Returns the context of a span with these ids, in hex."""
    return SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=is_remote,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT),
    )


def request_contexts(
    log: LogReader, engine: int, requests: Sequence[int]
) -> dict[int, SpanContext]:
    """Returns the contexts of requests' spans; one whose arrival is lost has none."""
    if not requests:
        return {}
    sql = _CONTEXTS.format(engine=engine, listed=", ".join(map(str, requests)))
    return {
        row["request"]: span_context(row["trace_id"], row["span_id"])
        for row in log.query(sql).to_pylist()
    }


class _Gathered(SpanProcessor):
    """Keeps ended spans. Nothing is lost here: whoever makes spans takes them in small batches."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        taken, self._spans = self._spans, []
        return taken


class _RecordedIds(IdGenerator):
    """Gives the next span the ids that the log gives it, in place of random ones."""

    def __init__(self) -> None:
        self._trace_id = 0
        self._span_id = 0

    def announce(self, span: Row) -> None:
        """Says whose turn it is."""
        self._trace_id = int(span["trace_id"], 16)
        self._span_id = int(span["span_id"], 16)

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id


def _end(span: Row, root: Row) -> int:
    ends = (span["end_ns"], root["end_ns"], root["start_ns"])
    return next(int(end) for end in ends if end is not None)


def _context_of_caller(root: Row) -> Context:
    """Returns the context in which a span begins: its caller's, or none.

    A caller that does not record its trace says so, and the standard sampler follows it.
    """
    if root["parent_span_id"] is None:
        return Context()
    is_sampled = root.get("trace_sampled") is not False
    parent = span_context(
        root["trace_id"], root["parent_span_id"], is_remote=True, is_sampled=is_sampled
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())
