"""Requests as OpenTelemetry spans: reads finished ones out of the step log and exports each once.

The spans are those of the view `request_spans`, to the nanosecond and to the id: `llm_request` with
a child for each stretch of the request's life. A caller's trace is continued, so the engine's work
shows under the span that asked for it. Names follow OpenTelemetry's GenAI conventions where they
have one; ours begin with `stepscope.`.

Not responsible for the wire: give it any span processor of the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
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

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 500
"""Requests read from the log at once."""

_SPANS = """
SELECT request, name, trace_id, span_id, parent_span_id, start_ns, end_ns,
       attributes::VARCHAR AS attributes
FROM request_spans
WHERE engine = {engine} AND request BETWEEN {first} AND {last}
ORDER BY request, name <> 'llm_request', start_ns, end_ns
"""


class LogReader(Protocol):
    """What answers a reading statement: `telemetry.store.Log` does."""

    def query(self, sql: str) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class _Ended:
    """A request that has ended: `seq` is the number of its last event."""

    engine: int
    seq: int
    request: int


class RequestSpanExporter:
    """Exports each finished request of a step log once, as spans.

    Call `export_finished` as often as spans should appear. `position` says how far each engine has
    been exported; given to a new exporter it goes on from there.

    The processor is shared by all engines and belongs to the caller, who shuts it down.
    """

    def __init__(
        self,
        log: LogReader,
        processor: SpanProcessor,
        *,
        service_name: str = "stepscope",
        position: Mapping[int, int] | None = None,
    ) -> None:
        self._log = log
        self._processor = processor
        self._service_name = service_name
        self._position = dict(position or {})
        self._tracers: dict[int, tuple[Tracer, _RecordedIds]] = {}
        self.num_without_arrival = 0
        """Requests passed over, since the log does not hold their arrival (records dropped)."""

    @property
    def position(self) -> dict[int, int]:
        """The last event of the last request exported, an engine each."""
        return dict(self._position)

    def export_finished(self) -> int:
        """Exports the requests that have ended since the last call; returns how many.

        Raises:
            StepscopeError: The log cannot be read. What was not exported is exported next time.
        """
        num_exported = 0
        while ended := self._ended_since():
            for engine, group in groupby(ended, key=lambda end: end.engine):
                num_exported += self._export(engine, list(group))
        return num_exported

    def _ended_since(self) -> list[_Ended]:
        """Returns the next requests that have ended, in order, an engine after the other."""
        first = " ".join(f"WHEN {engine} THEN {seq + 1}" for engine, seq in self._position.items())
        is_new = f"seq >= CASE engine {first} ELSE 0 END" if first else "true"
        rows = self._rows(
            f"SELECT engine, seq, request FROM request_finishes WHERE {is_new} "
            f"ORDER BY engine, seq LIMIT {BATCH}"
        )
        return [_Ended(row["engine"], row["seq"], row["request"]) for row in rows]

    def _export(self, engine: int, ended: Sequence[_Ended]) -> int:
        numbers = [end.request for end in ended]
        rows = self._rows(_SPANS.format(engine=engine, first=min(numbers), last=max(numbers)))
        lives = {request: list(life) for request, life in groupby(rows, lambda r: r["request"])}
        num_exported = 0
        for end in ended:
            life = lives.get(end.request, [])
            if life and life[0]["name"] == "llm_request":
                self._emit(engine, life[0], life[1:])
                num_exported += 1
            else:
                self.num_without_arrival += 1
            self._position[engine] = end.seq
        return num_exported

    def _emit(self, engine: int, root: dict[str, Any], children: Sequence[dict[str, Any]]) -> None:
        """Makes a request's spans; the root ends last, as a live one would."""
        tracer, ids = self._tracer(engine)
        ids.announce(root)
        attributes = json.loads(root["attributes"])
        request = tracer.start_span(
            root["name"],
            context=_context_of_caller(root),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=root["start_ns"],
        )
        within = set_span_in_context(request, Context())
        for child in children:
            ids.announce(child)
            tracer.start_span(
                child["name"],
                context=within,
                attributes=json.loads(child["attributes"]),
                start_time=child["start_ns"],
            ).end(child["end_ns"])
        if "error.type" in attributes:
            request.set_status(Status(StatusCode.ERROR, attributes["error.type"]))
        request.end(root["end_ns"])

    def _tracer(self, engine: int) -> tuple[Tracer, _RecordedIds]:
        """Returns the engine's tracer; each engine is a resource of its own."""
        if engine not in self._tracers:
            ids = _RecordedIds()
            provider = TracerProvider(
                resource=Resource.create(self._resource(engine)),
                sampler=ALWAYS_ON,
                id_generator=ids,
                shutdown_on_exit=False,
            )
            provider.add_span_processor(self._processor)
            self._tracers[engine] = (provider.get_tracer("stepscope"), ids)
        return self._tracers[engine]

    def _resource(self, engine: int) -> dict[str, str]:
        """Returns what is known of the engine under the names of the conventions."""
        known: dict[str, Any] = {
            "service.name": self._service_name,
            "service.instance.id": f"{engine:016x}",
        }
        for row in self._rows(
            f"SELECT host, version, source FROM engines WHERE engine = {engine} LIMIT 1"
        ):
            known["host.name"] = row["host"]
            known["service.version"] = row["version"]
            known["stepscope.source"] = row["source"]
        return {name: value for name, value in known.items() if value is not None}

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._log.query(sql).to_pylist()
        return rows


class _RecordedIds(IdGenerator):
    """Gives the next span the ids that the log gives it, in place of random ones."""

    def __init__(self) -> None:
        self._trace_id = 0
        self._span_id = 0

    def announce(self, span: Mapping[str, Any]) -> None:
        """Says whose turn it is."""
        self._trace_id = int(span["trace_id"], 16)
        self._span_id = int(span["span_id"], 16)

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id


def _context_of_caller(root: Mapping[str, Any]) -> Context:
    """Returns the context in which a request's span begins: its caller's, or none."""
    if root["parent_span_id"] is None:
        return Context()
    parent = SpanContext(
        trace_id=int(root["trace_id"], 16),
        span_id=int(root["parent_span_id"], 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())


__all__ = ["LogReader", "RequestSpanExporter"]
