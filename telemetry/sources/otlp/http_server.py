"""OTLP over HTTP: `POST /v1/traces`, protobuf or JSON, plain or gzip.

A client has so long for a request, and so many bytes; there are only so many clients at once.

Source: OpenTelemetry Protocol Specification, "OTLP/HTTP".
"""

from __future__ import annotations

import io
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from google.protobuf import json_format
from google.rpc import status_pb2

from telemetry.exporters.attributes import bounded
from telemetry.small_server import SmallServer, ThreadedServer
from telemetry.sources.otlp.decoding import NotOtlpError
from telemetry.sources.otlp.grpc_server import answer_to
from telemetry.sources.otlp.http_request import (
    DECODERS,
    JSON,
    PATH,
    PROTOBUF,
    PatientReader,
    RefusedError,
    decoder_for,
    read_body,
    unpacked,
)
from telemetry.sources.otlp.intake import Intake, LogBehindError

MOST_CLIENTS = 32
CLIENT_SECONDS = 10.0
"""A client has so long for one request, from its first byte to its last."""
IDLE_SECONDS = 60.0
"""A connection without a request is kept so long."""
GOODBYE_SECONDS = 2.0
"""A client that was refused may go on sending for so long."""
RETRY_SECONDS = 2
_READ_BYTES = 1 << 16
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class HttpServer(SmallServer):
    """An HTTP server in threads of its own, until it is closed."""

    def __init__(
        self, host: str, port: int, intake: Intake, *, client_seconds: float = CLIENT_SECONDS
    ) -> None:
        """Listens at `host` and `port`; port 0 takes a free one.

        Raises:
            OSError: The address cannot be listened at.
        """
        server = _Server((host, port), _handler(intake, client_seconds))
        super().__init__(server, name="stepscope-otlp-http", path=PATH)


class _Server(ThreadedServer):
    """Serves so many clients at once, and sends others away."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.Semaphore(MOST_CLIENTS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            return super().process_request(request, client_address)
        try:
            request.sendall(_BUSY)
        finally:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()


def _handler(intake: Intake, client_seconds: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "stepscope"
        sys_version = ""

        def setup(self) -> None:
            super().setup()
            self._patient = PatientReader(self.connection, IDLE_SECONDS)
            self.rfile.close()
            self._reader = io.BufferedReader(self._patient, _READ_BYTES)
            self.rfile = self._reader

        def handle_one_request(self) -> None:
            self._patient.allow(IDLE_SECONDS)
            try:
                self._reader.peek(1)
                self._patient.allow(client_seconds)
            except OSError:
                self.close_connection = True
                return
            super().handle_one_request()

        def do_POST(self) -> None:
            kind = self.headers.get_content_type()
            try:
                payload = read_body(self.path, self.headers, self._reader)
                decode = decoder_for(kind)
                answer = answer_to(intake.take(unpacked(payload, self.headers), decode))
            except RefusedError as refusal:
                intake.refuse()
                self._refuse(kind, *refusal.args)
            except NotOtlpError as error:
                self._refuse(kind, 400, str(error))
            except LogBehindError:
                self._refuse(kind, 503, "the step log is behind: try again")
            else:
                self._answer(200, kind, answer)

        def do_GET(self) -> None:
            self._refuse(JSON, 405, f"traces are sent here, by POST to {PATH}")

        def _refuse(self, kind: str, status: int, words: str) -> None:
            """Answers with the protocol's `Status`, and hangs up: a body may still be coming."""
            self.close_connection = True
            self._answer(status, kind, status_pb2.Status(message=bounded(words)))
            self._patient.discard(min(client_seconds, GOODBYE_SECONDS))

        def _answer(self, status: int, kind: str, message: Any) -> None:
            kind = kind if kind in DECODERS else JSON
            body = (
                message.SerializeToString()
                if kind == PROTOBUF
                else json_format.MessageToJson(message, indent=None).encode()
            )
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status == 503:
                self.send_header("Retry-After", str(RETRY_SECONDS))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """An export every few seconds is not worth a line."""

    return Handler
