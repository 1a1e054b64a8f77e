"""Senders that mean harm cost themselves an answer, and the collector next to nothing."""

from __future__ import annotations

import gzip
import resource
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import grpc
import pytest

from telemetry.sources.otlp import intake
from telemetry.sources.otlp.decoding import MOST_BYTES
from telemetry.sources.otlp.grpc_server import METHOD, MOST_AT_ONCE
from telemetry.sources.otlp.http_server import MOST_CLIENTS
from tests.telemetry.sources.otlp.builders import export
from tests.telemetry.sources.otlp.conftest import Listening
from tests.telemetry.sources.otlp.test_answers import JSON, PROTOBUF, channel, posted

LARGE = 100 << 20
WHOLE = export().SerializeToString()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def connect(listening: Listening) -> socket.socket:
    url = urlsplit(listening.http.url)
    return socket.create_connection((url.hostname or "", url.port or 0), timeout=20)


def assert_still_serves(listening: Listening) -> None:
    num_before = len(listening.rows.taken)
    with posted(listening, export().SerializeToString()) as (answer, _):
        assert answer.status == 200
    with channel(listening) as opened:
        assert opened.unary_unary(METHOD)(export().SerializeToString(), timeout=20) == b""
    assert len(listening.rows.taken) == num_before + 2


def test_a_hundred_megabytes_are_refused_unread_over_http(listening: Listening) -> None:
    with connect(listening) as client:
        head = (
            f"POST /v1/traces HTTP/1.1\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {LARGE}\r\n"
        )
        client.sendall(head.encode() + b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    assert_still_serves(listening)


def test_who_sends_too_much_hears_so_when_it_is_done(listening: Listening) -> None:
    with posted(listening, bytes(2 * MOST_BYTES)) as (answer, body):
        assert answer.status == 413
        assert b"4,194,304 bytes at most" in body


def test_a_gzip_bomb_is_not_unfolded_over_http(listening: Listening) -> None:
    bomb = gzip.compress(bytes(LARGE))
    before = peak_bytes()
    with posted(listening, bomb, Content_Encoding="gzip") as (answer, _):
        assert answer.status == 413
    assert peak_bytes() - before < LARGE // 2
    assert_still_serves(listening)


@pytest.mark.parametrize("compression", list(grpc.Compression)[:3:2], ids=["plain", "gzip"])
def test_a_large_message_is_refused_over_grpc(listening: Listening, compression: object) -> None:
    options = [("grpc.max_send_message_length", -1)]
    with (
        grpc.insecure_channel(listening.grpc.address, options=options) as opened,
        pytest.raises(grpc.RpcError) as told,
    ):
        opened.unary_unary(METHOD)(bytes(MOST_BYTES + 1), timeout=20, compression=compression)
    assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    assert_still_serves(listening)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/traces HT",
        b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/x-protobuf\r\nX: ",
        b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: 1000\r\n\r\nabc",
    ],
    ids=["nothing", "line", "headers", "body"],
)
def test_a_client_that_never_finishes_is_hung_up_on(
    listening: Listening, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.sources.otlp.http_server.IDLE_SECONDS", 0.5)
    with connect(listening) as client:
        client.sendall(sent)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")
    assert_still_serves(listening)


def test_a_client_that_trickles_has_no_longer(listening: Listening) -> None:
    never = threading.Event()

    def trickle(client: socket.socket) -> None:
        while True:
            client.sendall(b"x")
            never.wait(0.05)

    with connect(listening) as client:
        client.sendall(b"POST /v1/traces HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            trickle(client)


def test_a_grpc_call_that_never_sends_is_cancelled(listening: Listening) -> None:
    waits = threading.Event()

    def never() -> Iterator[bytes]:
        waits.wait(20)
        yield b""

    with channel(listening) as opened:
        call = opened.stream_unary(METHOD)
        with pytest.raises(grpc.RpcError) as told:
            call(never(), timeout=20)
        waits.set()
    assert told.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]


def test_calls_that_never_send_do_not_keep_others_out(listening: Listening) -> None:
    waits = threading.Event()

    def never() -> Iterator[bytes]:
        waits.wait(20)
        yield b""

    with channel(listening) as opened:
        call = opened.stream_unary(METHOD)
        stuck = [call.future(never(), timeout=20) for _ in range(MOST_AT_ONCE)]
        for each in stuck:
            assert each.exception() is not None
        waits.set()
    assert_still_serves(listening)


def test_too_many_clients_are_sent_away_and_the_others_stay(listening: Listening) -> None:
    held = [connect(listening) for _ in range(MOST_CLIENTS)]
    for client in held:  # each has a thread once it is answered
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/x-protobuf\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(WHOLE), WHOLE)
        )
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    with connect(listening) as late:
        assert late.recv(100).startswith(b"HTTP/1.1 503 ")
    for client in held:
        client.close()


def test_many_services_are_told_apart_only_so_far(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MOST_ENGINES", 2)
    for number in range(4):
        message = export(resource={"service.name": f"s{number}"})
        with posted(listening, message.SerializeToString()) as (answer, _):
            assert answer.status == 200
    assert len({row["engine"] for row in listening.rows.taken}) == 2
    assert "2 refused (more than 2 services sent spans)" in listening.intake.status()


def test_a_message_of_many_empty_spans_is_refused_and_stays_small(listening: Listening) -> None:
    empty_spans = b"\x12\x00" * (MOST_BYTES // 2 - 100)
    message = _field(1, _field(2, _field(1, _field(1, b"vllm")) + empty_spans))
    before = peak_bytes()
    with posted(listening, message) as (answer, body):
        assert answer.status == 400
        assert b"spans in one message: 20,000 are taken at once" in body
    assert peak_bytes() - before < 1 << 30
    assert listening.rows.taken == []


def test_json_of_many_empty_objects_is_not_unfolded(listening: Listening) -> None:
    message = b'{"resourceSpans": [' + b"{}," * (MOST_BYTES // 3 - 100) + b"{}]}"
    with posted(listening, message, JSON) as (answer, body):
        assert answer.status == 400
        assert b"too many empty objects" in body


def _field(number: int, content: bytes) -> bytes:
    """Returns a length-delimited field of protobuf's wire format."""
    length, size = b"", len(content)
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content
