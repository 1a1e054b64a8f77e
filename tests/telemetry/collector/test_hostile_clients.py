"""Whatever is sent to the query endpoint, it answers or hangs up, and serves the next one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.collector import endpoint as endpoint_module
from telemetry.collector import find_collector
from telemetry.collector.endpoint import MAX_CLIENTS, Endpoint
from telemetry.store.guard import Limits
from telemetry.store.wire import MAX_REQUEST_BYTES
from tests.telemetry.collector.builders import (
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)


def framed(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


def asked(**fields: Any) -> bytes:
    query = {"sql": "SELECT 1", "params": None, "timeout_seconds": 5, "max_rows": 10}
    return framed(json.dumps(query | fields).encode())


HOSTILE = {
    "nothing": b"",
    "half a length": b"\x02\0",
    "a length and no text": struct.pack("<I", 100),
    "half a text": framed(b'{"sql": "SELECT 1"')[:-4],
    "the longest length": b"\xff\xff\xff\xff",
    "a length just above the limit": struct.pack("<I", MAX_REQUEST_BYTES + 1),
    "no length": framed(b""),
    "garbage": os.urandom(64),
    "text that is no JSON": framed(b"SELECT 1"),
    "text that is no UTF-8": framed(b'{"sql": "\xff\xfe"}'),
    "a list": framed(b"[]"),
    "a number": framed(b"1"),
    "an object without anything": framed(b"{}"),
    "JSON in JSON": framed(b"[" * 100_000),
    "a very long number": framed(b'{"max_rows": ' + b"9" * 10_000 + b"}"),
    "sql that is a number": asked(sql=1),
    "sql that is an object": asked(sql={"a": 1}),
    "params that are a text": asked(params="x"),
    "params in params": asked(sql="SELECT ?", params=[[[[1]]]]),
    "a parameter that is an object": asked(sql="SELECT ?", params=[{"a": {"b": 1}}]),
    "a time limit that is a text": asked(timeout_seconds="soon"),
    "a time limit that is no number": asked(timeout_seconds=float("nan")),
    "a time limit below nothing": asked(timeout_seconds=-1),
    "a time limit without an end": asked(timeout_seconds=float("inf")),
    "rows without an end": asked(max_rows=10**30),
    "rows that are none": asked(max_rows=0),
    "rows that are a list": asked(max_rows=[1]),
    "half a character": asked(sql="SELECT '\ud800'"),
    "a zero byte": asked(sql="SELECT 1 \0"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP that posts": b"POST /../../etc/passwd HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    "HTTP with a long header": b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100f1010000ed0303") + bytes(60),
    "PostgreSQL's greeting": struct.pack(">II", 8, 80877103),
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    log = tmp_path_factory.mktemp("hostile") / "log"
    ring = ring_for(log)
    record(ring, 0, 20)
    with collector_process(log) as process:
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(20,)])
        yield log
        assert process.poll() is None
    ring.close()


@pytest.fixture(autouse=True)
def served(live: Path) -> Iterator[None]:
    yield
    assert rows(live, "SELECT count(*) FROM steps") == [(20,)]


def connect(log: Path) -> socket.socket:
    notice = find_collector(log)
    assert notice is not None
    client = socket.socket(socket.AF_UNIX)
    client.connect(notice.socket)  # waits while the door is full
    client.settimeout(20)
    return client


def reply(client: socket.socket) -> bytes:
    """Returns all that comes until the other side hangs up."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("message", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_message_is_answered_or_hung_up_on(live: Path, message: bytes) -> None:
    with connect(live) as client:
        with contextlib.suppress(OSError):  # it may have hung up already
            client.sendall(message)
            client.shutdown(socket.SHUT_WR)
        answer = reply(client)
    if answer:
        length = struct.unpack("<I", answer[:4])[0]
        assert {"error", "truncated"} & set(json.loads(answer[4 : 4 + length]))


def test_who_leaves_in_the_middle_of_an_answer_hurts_nobody(live: Path) -> None:
    with connect(live) as client:
        client.sendall(asked(sql="SELECT repeat('x', 9999) FROM range(2000)", max_rows=2000))
        assert client.recv(4)


def test_a_client_that_sends_byte_by_byte_is_served(live: Path) -> None:
    with connect(live) as client:
        for byte in asked():
            client.sendall(bytes([byte]))
        length = struct.unpack("<I", client.recv(4, socket.MSG_WAITALL))[0]
        assert json.loads(client.recv(length, socket.MSG_WAITALL))["truncated"] is False


def test_clients_that_say_nothing_do_not_keep_others_out_for_good(live: Path) -> None:
    silent = [connect(live) for _ in range(MAX_CLIENTS + 5)]
    for client in silent:
        client.close()
    wait_until(lambda: rows(live, "SELECT 1") == [(1,)])


class _Deaf:
    """A connection on which a query goes on until it is let go, whatever interrupts it."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self._own = duckdb.connect()

    def extract_statements(self, sql: str) -> Any:
        return self._own.extract_statements(sql)

    def execute(self, sql: str, params: Any = None) -> Any:
        return self._own.execute(sql, params)

    def sql(self, statement: Any, params: Any = None) -> Any:
        self.let_go.wait(20)
        return self._own.sql(statement, params=params)

    def interrupt(self) -> None:
        pass


def test_a_query_that_does_not_hear_its_interrupt_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "DEAF_SECONDS", 0.0)
    connection = _Deaf()
    told: list[str] = []

    def on_deaf(sql: str) -> None:
        told.append(sql)
        connection.let_go.set()

    path = tmp_path / "s"
    listener = Endpoint(path, lambda: contextlib.nullcontext(connection), Limits(), on_deaf=on_deaf)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(asked(timeout_seconds=0.05))
        assert client.recv(4)
    listener.close()
    assert told == ["SELECT 1"]
