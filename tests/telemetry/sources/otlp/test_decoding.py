"""Both forms of a message read as the same, and what is no message is refused with words."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format

from telemetry.sources.otlp.decoding import NotOtlpError, from_json, from_protobuf
from tests.telemetry.sources.otlp.builders import CAPTURED, export


def as_otlp_json(payload: bytes) -> dict:  # type: ignore[type-arg]
    """Returns a message as OTLP writes JSON: ids in hexadecimal."""
    message = from_protobuf(payload)
    document: dict = json_format.MessageToDict(message)  # type: ignore[type-arg]
    for resource, of_resource in zip(
        document["resourceSpans"], message.resource_spans, strict=True
    ):
        for scope, of_scope in zip(resource["scopeSpans"], of_resource.scope_spans, strict=True):
            for span, original in zip(scope["spans"], of_scope.spans, strict=True):
                span["traceId"] = original.trace_id.hex()
                span["spanId"] = original.span_id.hex().upper()
                if original.parent_span_id:
                    span["parentSpanId"] = original.parent_span_id.hex()
    return document


@pytest.mark.parametrize("path", sorted(CAPTURED.glob("*.pb")), ids=lambda path: path.stem)
def test_json_reads_as_the_same_message(path: object) -> None:
    payload = path.read_bytes()  # type: ignore[attr-defined]
    assert from_json(json.dumps(as_otlp_json(payload)).encode()) == from_protobuf(payload)


def test_fields_of_a_newer_version_are_left_out() -> None:
    document = as_otlp_json(export().SerializeToString())
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["newField"] = {"a": 1}
    assert from_json(json.dumps(document).encode()).resource_spans[0].scope_spans[0].spans[0].name


@pytest.mark.parametrize("payload", [b"\x00garbage", b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f"])
def test_garbage_is_no_protobuf(payload: bytes) -> None:
    with pytest.raises(NotOtlpError, match="no protobuf of a trace export request"):
        from_protobuf(payload)


SPANS = '{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "{}",
        '{"resourceMetrics": []}',
        '{"resourceSpans": 7}',
        '{"resourceSpans": [7]}',
        SPANS % '{"traceId": "not hexadecimal"}',
        SPANS % '{"traceId": 7}',
        SPANS % '{"endTimeUnixNano": "soon"}',
        '{"resourceSpans": ' + "[" * 100_000,
        SPANS % ('{"attributes": [{"key": "a", "value": ' + '{"arrayValue": {"values": [' * 5_000),
    ],
    ids=range(12),
)
def test_garbage_is_no_json(text: str) -> None:
    with pytest.raises(NotOtlpError, match="no JSON of a trace export request"):
        from_json(text.encode())


def test_values_nested_without_end_are_refused() -> None:
    value: dict = {"stringValue": "x"}  # type: ignore[type-arg]
    for _ in range(150):
        value = {"arrayValue": {"values": [value]}}
    span = json.dumps({"attributes": [{"key": "a", "value": value}]})
    with pytest.raises(NotOtlpError):
        from_json((SPANS % span).encode())
