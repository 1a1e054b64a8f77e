"""A receiver of webhooks: a real HTTP server that answers as it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from telemetry.small_server import SmallServer, ThreadedServer


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Receiver:
    """What has come. `answers` are the status codes of the next requests; then 200."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)

    @property
    def payloads(self) -> list[Any]:
        return [each.json for each in self.received]


@contextmanager
def receiver(*answers: int, port: int = 0, **headers: str) -> Iterator[Receiver]:
    """Runs a receiver, on a port of its own unless one is named."""
    heard = Receiver(answers=list(answers), headers=headers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.received.append(Received(self.path, dict(self.headers), body))
            self.send_response(heard.answers.pop(0) if heard.answers else 200)
            for name, value in heard.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            heard.received.append(Received(self.path, dict(self.headers), b""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = SmallServer(
        ThreadedServer(("127.0.0.1", port), Handler), name="receiver", path="/hook"
    )
    heard.url = server.url
    try:
        yield heard
    finally:
        server.close()
