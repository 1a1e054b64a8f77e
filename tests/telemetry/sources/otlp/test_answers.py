"""What senders are told, in the words and codes of the protocol."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import grpc
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

from telemetry.errors import CollectorError
from telemetry.sources.otlp.grpc_server import METHOD
from telemetry.sources.otlp.listener import Addresses, OtlpListener
from tests.telemetry.sources.otlp.builders import export
from tests.telemetry.sources.otlp.conftest import Listening
from tests.telemetry.sources.waiting_rows import WaitingRows

PROTOBUF, JSON = "application/x-protobuf", "application/json"


@contextmanager
def posted(
    listening: Listening,
    body: bytes,
    kind: str | None = PROTOBUF,
    *,
    path: str = "/v1/traces",
    method: str = "POST",
    **headers: str,
) -> Iterator[tuple[HTTPResponse, bytes]]:
    connection = HTTPConnection(urlsplit(listening.http.url).netloc, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {**({"Content-Type": kind} if kind else {}), **named})
    answer = connection.getresponse()
    try:
        yield answer, answer.read()
    finally:
        connection.close()


@contextmanager
def channel(listening: Listening) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(listening.grpc.address) as opened:
        yield opened


# ------------------------------------------------------------------------------------- success


def test_success_over_http_is_an_empty_answer_in_kind(listening: Listening) -> None:
    with posted(listening, export().SerializeToString()) as (answer, body):
        assert (answer.status, body, answer.headers["Content-Type"]) == (200, b"", PROTOBUF)
    with posted(listening, json.dumps({"resourceSpans": []}).encode(), JSON) as (answer, body):
        assert (answer.status, body, answer.headers["Content-Type"]) == (200, b"{}", JSON)


def test_json_spans_are_kept(listening: Listening) -> None:
    end = export().resource_spans[0].scope_spans[0].spans[0].end_time_unix_nano
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "llm_request"}
    scope = {
        "scope": {"name": "vllm.tracing.otel"},
        "spans": [span | {"endTimeUnixNano": str(end)}],
    }
    body = json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]}).encode()
    with posted(listening, body, "application/json; charset=utf-8") as (answer, _):
        assert answer.status == 200
    (row,) = listening.rows.taken
    assert (row["trace_id"], row["span_id"], row["ts"]) == ("ab" * 16, "cd" * 8, end)


def test_one_connection_serves_many_messages(listening: Listening) -> None:
    connection = HTTPConnection(urlsplit(listening.http.url).netloc, timeout=20)
    for _ in range(3):
        connection.request(
            "POST", "/v1/traces", export().SerializeToString(), {"Content-Type": PROTOBUF}
        )
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        assert not answer.will_close
    connection.close()
    assert len(listening.rows.taken) == 3


@pytest.mark.parametrize("kind", [PROTOBUF, JSON, "grpc"])
def test_refused_spans_are_a_partial_success(listening: Listening, kind: str) -> None:
    message = export(num_spans=2)
    message.MergeFrom(export(end_ns=1, num_spans=3))
    why = "it ended at a time that cannot be: compare the clocks"
    if kind == "grpc":
        with channel(listening) as opened:
            told = trace_grpc.TraceServiceStub(opened).Export(message, timeout=20)
    elif kind == PROTOBUF:
        with posted(listening, message.SerializeToString()) as (answer, body):
            assert answer.status == 200
            told = trace_pb.ExportTraceServiceResponse.FromString(body)
    else:
        garbage = {"traceId": "", "spanId": ""}
        scope = {"scope": {"name": "vllm"}, "spans": [garbage]}
        text = json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]}).encode()
        with posted(listening, text, JSON) as (answer, body):
            assert answer.status == 200
            assert json.loads(body) == {
                "partialSuccess": {
                    "rejectedSpans": "1",
                    "errorMessage": "a trace id is 16 bytes and a span id 8",
                }
            }
        return
    assert (told.partial_success.rejected_spans, told.partial_success.error_message) == (3, why)
    assert len(listening.rows.taken) == 2


# ----------------------------------------------------------------------------------- refusals

WHOLE = export().SerializeToString()


@pytest.mark.parametrize(
    ("body", "kind", "more", "status", "words"),
    [
        (b"\x00garbage", PROTOBUF, {}, 400, "no protobuf"),
        (b"{", JSON, {}, 400, "no JSON"),
        (WHOLE, "text/plain", {}, 415, "send application/x-protobuf or application/json"),
        (WHOLE, None, {}, 415, "Content-Type is text/plain"),
        (WHOLE, PROTOBUF, {"Content_Encoding": "br"}, 415, "send gzip, or none"),
        (WHOLE, PROTOBUF, {"Content_Encoding": "gzip"}, 400, "no gzip"),
        (gzip.compress(WHOLE)[:-4], PROTOBUF, {"Content_Encoding": "gzip"}, 400, "no whole gzip"),
        (WHOLE, PROTOBUF, {"path": "/v1/metrics"}, 404, "no metrics and no logs"),
        (WHOLE, PROTOBUF, {"Content_Length": "-1"}, 411, "Content-Length"),
        (WHOLE, PROTOBUF, {"Content_Length": "9" * 400}, 413, "4,194,304 bytes at most"),
        (b"", PROTOBUF, {"method": "GET"}, 405, "by POST to /v1/traces"),
    ],
    ids=range(11),
)
def test_http_says_what_is_wrong(
    listening: Listening,
    body: bytes,
    kind: str | None,
    more: dict[str, str],
    status: int,
    words: str,
) -> None:
    with posted(listening, body, kind, **more) as (answer, told):  # type: ignore[arg-type]
        assert answer.status == status
        in_protobuf = answer.headers["Content-Type"] == PROTOBUF
        message = Status.FromString(told).message if in_protobuf else json.loads(told)["message"]
        assert words in message
    assert listening.rows.taken == []


def test_garbage_over_grpc_is_an_invalid_argument(listening: Listening) -> None:
    with channel(listening) as opened, pytest.raises(grpc.RpcError) as told:
        opened.unary_unary(METHOD)(b"\x00garbage", timeout=20)
    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
    assert "no protobuf" in told.value.details()  # type: ignore[attr-defined]


def test_metrics_over_grpc_are_not_implemented(listening: Listening) -> None:
    method = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
    with channel(listening) as opened, pytest.raises(grpc.RpcError) as told:
        opened.unary_unary(method)(b"", timeout=20)
    assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


def test_a_log_that_is_behind_has_senders_try_again() -> None:
    servers = Listening(WaitingRows(most=1))
    servers.rows.add("samples", [{"engine": 1, "ts": 1}])
    try:
        with posted(servers, WHOLE) as (answer, _):
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        with channel(servers) as opened, pytest.raises(grpc.RpcError) as told:
            opened.unary_unary(METHOD)(WHOLE, timeout=20)
        assert told.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
    finally:
        servers.close()


def test_what_the_log_has_no_room_for_is_refused() -> None:
    servers = Listening(WaitingRows(most=3))
    try:
        with posted(servers, export(num_spans=5).SerializeToString()) as (_, body):
            told = trace_pb.ExportTraceServiceResponse.FromString(body).partial_success
        num_taken = len(servers.rows.taken)
        assert told.rejected_spans == 5 - num_taken
        assert "as fast as they come" in told.error_message
    finally:
        servers.close()


@pytest.mark.parametrize(("protocol", "flag"), [("grpc", "--otlp-grpc"), ("http", "--otlp-http")])
def test_an_address_that_is_taken_is_told_with_its_flag(
    listening: Listening, protocol: str, flag: str
) -> None:
    taken = {
        "grpc": int(listening.grpc.address.rpartition(":")[2]),
        "http": urlsplit(listening.http.url).port or 0,
    }
    second = OtlpListener(Addresses(**{protocol: ("127.0.0.1", taken[protocol])}))
    with pytest.raises(CollectorError, match=f"choose another address with {flag} HOST:PORT"):
        second.start(WaitingRows())
    second.close()
