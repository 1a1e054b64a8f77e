"""KV events that lie in files: raw captures, and lists of sizes.

    raw     of each message: length of the payload (u32, little endian), number (8 bytes, big
            endian, as on the wire), payload
    JSON    a message a line: seq, ts, dp, topic, and ev: a list of {t, n, bs, medium, grp}. It has
            no hashes.

Either may be gzip.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from telemetry.errors import ImportRefused
from telemetry.sources.kv_events.messages import (
    MOST_BYTES,
    Batch,
    CacheEvent,
    NotEventsError,
    decode,
    nanoseconds,
)
from telemetry.sources.opening import opened

_HEAD = struct.Struct("<I8s")
_KINDS: dict[str, Literal["stored", "removed", "cleared"]] = {
    "BlockStored": "stored",
    "BlockRemoved": "removed",
    "AllBlocksCleared": "cleared",
}


@dataclass(frozen=True, slots=True)
class Captured:
    """A message of a file."""

    number: int
    topic: bytes
    batch: Batch


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of a file that is no message, and why."""

    why: str


def captured_in(path: Path) -> Iterator[Captured | Unread]:
    """Yields the messages of a file.

    Raises:
        ImportRefused: It cannot be read on; the message says why.
    """
    with opened(path) as stream:
        is_json = stream.read(1) == b"{"
        stream.seek(0)
        yield from (_json_lines if is_json else _raw)(path, stream)


def _raw(path: Path, stream: BinaryIO) -> Iterator[Captured | Unread]:
    index = 0
    while head := stream.read(_HEAD.size):
        place = f"{path.name}, message {index}"
        length, number = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
        if length > MOST_BYTES:
            raise ImportRefused(
                f"{place} says that it has {length:,} bytes; {MOST_BYTES:,} is the most there can "
                "be: this is no capture of KV events, or it is damaged before"
            )
        payload = stream.read(length)
        if len(head) < _HEAD.size or len(payload) < length:
            yield Unread(f"{place} is cut off")
            return
        try:
            yield Captured(int.from_bytes(number, "big"), b"", decode(payload))
        except NotEventsError as error:
            yield Unread(f"{place}: {error}")
        index += 1


def _json_lines(path: Path, stream: BinaryIO) -> Iterator[Captured | Unread]:
    for number, line in enumerate(iter(lambda: stream.readline(MOST_BYTES + 1), b""), 1):
        place = f"{path.name}:{number}"
        try:
            yield _from_json(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            yield Unread(f"{place}: no message of KV events: {error!r}")


def _from_json(told: dict[str, Any]) -> Captured:
    events = [_event(each) for each in told["ev"]]
    batch = Batch(
        ts=nanoseconds(float(told["ts"])),
        rank=None if told["dp"] is None else int(told["dp"]),
        events=[event for event in events if event is not None],
        num_unknown=sum(event is None for event in events),
    )
    return Captured(int(told["seq"]), str(told["topic"]).encode(), batch)


def _event(told: dict[str, Any]) -> CacheEvent | None:
    kind = _KINDS.get(told["t"])
    if kind is None:
        return None
    return CacheEvent(
        kind=kind,
        num_blocks=None if kind == "cleared" else int(told["n"]),
        block_size=told.get("bs"),
        medium=told.get("medium"),
        group=told.get("grp"),
    )
