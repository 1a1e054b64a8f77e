"""Bytes, protobuf or JSON, as a trace export request.

JSON differs from protobuf's own JSON in one thing: trace and span ids are hexadecimal. What is read
is the same message, so all that follows has one form to deal with.

Source: OpenTelemetry Protocol Specification, "JSON Protobuf Encoding".
"""

from __future__ import annotations

import base64
import json
from typing import Any, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

ExportRequest: TypeAlias = trace_service_pb2.ExportTraceServiceRequest

MOST_BYTES = 4 << 20
"""Of a message, unpacked: some 6,000 spans of vLLM's. An exporter sends 512 at most by default."""
MOST_SPANS = 20_000
"""Of a message that comes over the wire."""
_BYTES_PER_OBJECT = 16
"""Of JSON at least: an attribute of the shortest name and value has 38 bytes in two objects."""
_IDS = ("traceId", "spanId", "parentSpanId")
_NOT_READ = ("events", "links", "traceState")


class NotOtlpError(ValueError):
    """Bytes are no trace export request; the message says why."""


def from_protobuf(payload: bytes) -> ExportRequest:
    """Returns the message in `payload`.

    Raises:
        NotOtlpError: It is none.
    """
    message = ExportRequest()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        raise NotOtlpError("no protobuf of a trace export request") from None
    return message


def from_json(payload: bytes) -> ExportRequest:
    """Returns the message in `payload`, which is JSON as OTLP has it.

    Raises:
        NotOtlpError: It is none.
    """
    if payload.count(b"{") * _BYTES_PER_OBJECT > len(payload) + 1_000:
        raise NotOtlpError("no JSON of a trace export request: it has too many empty objects")
    try:
        document = json.loads(payload)
        if not isinstance(document, dict) or "resourceSpans" not in document:
            raise NotOtlpError("no JSON of a trace export request: it has no resourceSpans")
        for span in _spans_of(document):
            _prepare(span)
        message = ExportRequest()
        json_format.ParseDict(document, message, ignore_unknown_fields=True)
    except NotOtlpError:
        raise
    except (ValueError, RecursionError, json_format.Error) as error:
        raise NotOtlpError(f"no JSON of a trace export request: {error}") from None
    return message


def count_spans(message: ExportRequest) -> int:
    """Returns how many spans are in a message, of whatever service."""
    return sum(
        len(of_scope.spans)
        for of_resource in message.resource_spans
        for of_scope in of_resource.scope_spans
    )


def _spans_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the spans in a document; what is not shaped like one is left to the parser."""
    found = [document]
    for level in ("resourceSpans", "scopeSpans", "spans"):
        below = [part.get(level) for part in found]
        found = [
            part
            for parts in below
            if isinstance(parts, list)
            for part in parts
            if isinstance(part, dict)
        ]
    return found


def _prepare(span: dict[str, Any]) -> None:
    """Makes ids what protobuf's JSON takes, and leaves out what is not read."""
    for name in _NOT_READ:
        span.pop(name, None)
    for name in _IDS:
        if isinstance(span.get(name), str):
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
