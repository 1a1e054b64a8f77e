"""Export requests that lie in files: one protobuf message a file, JSON, or a JSON message a line.

The lines are what the OpenTelemetry collector's file exporter writes. Any of them may be gzip; what
a file is, its name says, or else its first byte. A message is read at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from telemetry.errors import ImportRefused
from telemetry.sources.opening import opened
from telemetry.sources.otlp.decoding import ExportRequest, from_json, from_protobuf

MOST_BYTES = 64 << 20
"""Of one message, unpacked."""
_JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
_PROTOBUF_ENDINGS = (".pb", ".bin", ".proto")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it lies in a file. `place` is file and line, for people."""

    place: str
    payload: bytes
    decode: Callable[[bytes], ExportRequest]


def messages_in(path: Path) -> Iterator[Message]:
    """Yields the messages of a file.

    Raises:
        ImportRefused: It cannot be read on; the message says why.
    """
    with opened(path) as stream:
        if _is_json(path, stream):
            yield from _json_messages(path, stream)
        elif payload := _all_of(path, stream):
            yield Message(path.name, payload, from_protobuf)


def _is_json(path: Path, stream: BinaryIO) -> bool:
    endings = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if endings and endings[-1] in (*_JSON_ENDINGS, *_PROTOBUF_ENDINGS):
        return endings[-1] in _JSON_ENDINGS
    is_json = stream.read(1) == b"{"
    stream.seek(0)
    return is_json


def _json_messages(path: Path, stream: BinaryIO) -> Iterator[Message]:
    """Yields a message a line, or the whole file where its first line is no whole one."""
    line = stream.readline(MOST_BYTES + 1)
    if line.strip() and len(line) <= MOST_BYTES and not line.rstrip().endswith(b"}"):
        yield Message(path.name, line + _all_of(path, stream, len(line)), from_json)
        return
    number = 1
    while line:
        if len(line) > MOST_BYTES:
            raise ImportRefused(_too_large(f"{path.name}:{number}"))
        if line.strip():
            yield Message(f"{path.name}:{number}", line, from_json)
        line = stream.readline(MOST_BYTES + 1)
        number += 1


def _all_of(path: Path, stream: BinaryIO, num_read: int = 0) -> bytes:
    """Returns the rest of a stream of which `num_read` bytes are read already."""
    parts = []
    while chunk := stream.read(_CHUNK_BYTES):
        parts.append(chunk)
        num_read += len(chunk)
        if num_read > MOST_BYTES:
            raise ImportRefused(_too_large(path.name))
    return b"".join(parts)


def _too_large(place: str) -> str:
    return f"{place} is one message of more than {MOST_BYTES >> 20} MiB: export fewer spans at once"
