"""A small OpenAI-like server on loopback that can also misbehave."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeApi:
    """What it was sent, and how it answers: by default with as many tokens as asked for.

    `misbehave` maps the index of a request to `refuse`, `error`, `cut`, `abort` or `garbage`.
    """

    misbehave: dict[int, str] = field(default_factory=dict)
    vocab_size: int | None = 50
    bodies: list[dict[str, Any]] = field(default_factory=list)
    num_at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Runs the server; yields its URL."""
        handler = type("Handler", (_Handler,), {"api": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    api: FakeApi

    def log_message(self, *args: object) -> None: ...

    def do_GET(self) -> None:
        card = {"id": "fake", "vocab_size": self.api.vocab_size}
        self._answer(200, json.dumps({"data": [card]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.api.lock:
            index = len(self.api.bodies)
            self.api.bodies.append(body)
            self.api.num_at_once += 1
            self.api.most_at_once = max(self.api.most_at_once, self.api.num_at_once)
        try:
            self._complete(self.api.misbehave.get(index, "well"), body["max_tokens"])
        finally:
            with self.api.lock:
                self.api.num_at_once -= 1

    def _complete(self, how: str, num_tokens: int) -> None:
        if how == "refuse":
            return self._answer(400, json.dumps({"error": {"message": "too long"}}))
        # U+0085 is a line's end for some, but not in a stream of events.
        chunks = [{"choices": [{"text": "a\u0085", "finish_reason": None}]}] * (num_tokens - 1)
        if how == "garbage":
            return self._answer(200, "data: {oops\n\n")
        if how == "error":
            return self._answer(200, _events([*chunks, {"error": {"message": "it broke"}}]))
        if how == "cut":
            return self._answer(200, _events(chunks))
        reason = "abort" if how == "abort" else "length"
        last = {"choices": [{"text": "z", "finish_reason": reason}]}
        usage = {"choices": [], "usage": {"completion_tokens": num_tokens}}
        return self._answer(200, _events([*chunks, last, usage]) + "data: [DONE]\n\n")

    def _answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _events(bodies: list[dict[str, Any]]) -> str:
    return "".join(f"data: {json.dumps(body, ensure_ascii=False)}\n\n" for body in bodies)
