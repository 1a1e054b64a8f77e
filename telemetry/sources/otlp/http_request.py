"""One request over HTTP, read from a client that may be slow, or mean harm.

Source: OpenTelemetry Protocol Specification, "OTLP/HTTP Request".
"""

from __future__ import annotations

import io
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from typing import Any, BinaryIO

from telemetry.sources.otlp.decoding import MOST_BYTES, ExportRequest, from_json, from_protobuf

PATH = "/v1/traces"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
DECODERS: dict[str, Callable[[bytes], ExportRequest]] = {PROTOBUF: from_protobuf, JSON: from_json}
_DISCARD_BYTES = 1 << 16
_TOO_LARGE = f"a message has {MOST_BYTES:,} bytes at most, unpacked: send fewer spans at once"


class PatientReader(io.RawIOBase):
    """Reads from a client that has until a deadline, however slowly its bytes come."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Sets the deadline, so many seconds from now."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)

    def discard(self, seconds: float) -> None:
        """Throws away what still comes: hung up on while it sends, a client loses the answer."""
        self.allow(seconds)
        buffer = bytearray(_DISCARD_BYTES)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            while self.readinto(buffer):
                pass


class RefusedError(Exception):
    """A request that gets no further; `args` are the HTTP status and the words."""


def read_body(path: str, headers: Message, body: BinaryIO) -> bytes:
    """Returns the body of a request.

    Raises:
        RefusedError: It is for another address, or of no or too great a length.
    """
    if path.partition("?")[0] != PATH:
        raise RefusedError(404, f"only traces are taken, at {PATH}: no metrics and no logs")
    length = headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit()):
        raise RefusedError(411, "say the length of the message in Content-Length")
    if len(length) > 12 or int(length) > MOST_BYTES:
        raise RefusedError(413, _TOO_LARGE)
    try:
        payload = body.read(int(length))
    except OSError:
        raise RefusedError(408, "the message did not come in time") from None
    if len(payload) < int(length):
        raise RefusedError(400, "the message ended early")
    return payload


def decoder_for(kind: str) -> Callable[[bytes], ExportRequest]:
    """Returns what reads a body of a content type.

    Raises:
        RefusedError: It is none of OTLP's.
    """
    if kind not in DECODERS:
        raise RefusedError(415, f"Content-Type is {kind}: send {PROTOBUF} or {JSON}")
    return DECODERS[kind]


def unpacked(payload: bytes, headers: Message) -> bytes:
    """Returns a body without its compression.

    Raises:
        RefusedError: It is none that is known, no whole one, or unfolds to too much.
    """
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return payload
    if encoding != "gzip":
        raise RefusedError(415, f"Content-Encoding is {encoding}: send gzip, or none")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(payload, MOST_BYTES + 1)
    except zlib.error as error:
        raise RefusedError(400, f"the body is no gzip: {error}") from None
    if len(unpacked) > MOST_BYTES:
        raise RefusedError(413, _TOO_LARGE)
    if not unpacking.eof:
        raise RefusedError(400, "the body is no whole gzip")
    return unpacked
