"""Whatever is sent to the API, it answers or hangs up, and serves the next one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.engine.server.in_process import make_core, serving_in_process


def request(
    body: bytes = b"", *, method: str = "POST", path: str = "/v1/completions", headers: str = ""
) -> bytes:
    lines = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    lines += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return lines.encode("latin-1") + body


def asked(**fields: object) -> bytes:
    body = {"model": "scripted", "prompt": [1, 2, 3], "max_tokens": 2} | fields
    return request(json.dumps(body).encode())


HOSTILE = {
    "nothing": b"",
    "garbage": os.urandom(256),
    "half a request line": b"POST /v1/comp",
    "half a header": b"POST /v1/completions HTTP/1.1\r\nHost: ",
    "half a body": request(b'{"model": "scripted"}')[:-5],
    "no version": b"GET /health\r\n\r\n",
    "an unknown version": b"GET /health HTTP/9.9\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100f1010000ed0303") + bytes(60),
    "a header of 200 kB": request(b"{}", headers="X: " + "a" * 200_000 + "\r\n"),
    "two thousand headers": request(b"{}", headers="".join(f"X{n}: y\r\n" for n in range(2000))),
    "a path of 100 kB": request(method="GET", path="/" + "a" * 100_000),
    "a path that climbs": request(method="GET", path="/../../../../etc/passwd"),
    "a path that climbs in disguise": request(method="GET", path="/%2e%2e/%2e%2e/etc/passwd"),
    "a path with a zero byte": request(method="GET", path="/health%00.txt"),
    "an absolute path": request(method="GET", path="http://169.254.169.254/latest/meta-data"),
    "an unknown method": request(method="BREW", path="/v1/completions"),
    "a method that is not meant": request(method="DELETE", path="/v1/completions"),
    "a negative length": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "two lengths": request(b"{}", headers="Content-Length: 999\r\n"),
    "a length and chunks": request(b"{}", headers="Transfer-Encoding: chunked\r\n"),
    "chunks of nonsense": (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "no JSON": request(b"prompt=hello"),
    "JSON in JSON": request(b"[" * 100_000),
    "a body that is no UTF-8": request(b'{"prompt": "\xff\xfe"}'),
    "half a character": request(b'{"model": "scripted", "prompt": "\\ud800", "max_tokens": 1}'),
    "a list": request(b"[]"),
    "nothing in it": request(b"{}"),
    "another model": asked(model="../../etc/passwd"),
    "tokens below nothing": asked(prompt=[-1]),
    "tokens beyond everything": asked(prompt=[10**30]),
    "tokens that are none": asked(prompt=[[[1]]]),
    "no prompt at all": asked(prompt=[]),
    "a million answers": asked(n=1_000_000),
    "answers without an end": asked(max_tokens=10**18),
    "fewer than no tokens": asked(max_tokens=-5),
    "a temperature that is no number": request(
        b'{"model": "scripted", "prompt": [1], "temperature": NaN}'
    ),
    "ten thousand stops": asked(stop=["x"] * 10_000),
    "a priority beyond everything": asked(priority=10**30),
    "a trace that is none": request(
        json.dumps({"model": "scripted", "prompt": [1], "max_tokens": 1}).encode(),
        headers="traceparent: 00-" + "z" * 500 + "\r\n",
    ),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_in_process(make_core()) as address:
        yield address


@pytest.fixture(autouse=True)
def served(url: str) -> Iterator[None]:
    """A good request follows each."""
    yield
    assert httpx.get(f"{url}/health", timeout=20).status_code == 200


@pytest.mark.parametrize("message", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_request_is_answered_or_hung_up_on(url: str, message: bytes) -> None:
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as client:
        with contextlib.suppress(OSError):  # it may have hung up already
            client.sendall(message)
            client.shutdown(socket.SHUT_WR)
        answer = _reply(client)
    assert b"root:" not in answer
    assert b"Traceback" not in answer
    if answer:
        status = int(answer.split(b" ", 2)[1])
        assert status == 200 or 400 <= status < 500, answer[:300]


def test_a_client_that_goes_in_the_middle_of_its_body_is_no_error_of_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving_in_process(make_core()) as address:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port), timeout=20) as client:
            client.sendall(request(b'{"model": "scripted"}')[:-5])
        assert httpx.get(f"{address}/health", timeout=20).status_code == 200
    assert "Traceback" not in capsys.readouterr().err


def _reply(client: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_many_that_say_nothing_keep_nobody_out(url: str) -> None:
    place = urlsplit(url)
    silent = [socket.create_connection((place.hostname, place.port), 20) for _ in range(200)]
    assert httpx.get(f"{url}/health", timeout=20).status_code == 200
    for client in silent:
        client.close()
