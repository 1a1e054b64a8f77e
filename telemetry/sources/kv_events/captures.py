"""KV events that lie in files: raw captures, and lists of sizes.

    raw     of each message: length of the payload (u32, little endian), number (8 bytes, big
            endian, as on the wire), payload
    JSON    a message a line: seq, ts, dp, topic, and ev: a list of {t, n, bs, medium, grp}. It has
            no hashes.

Either may be gzip.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from telemetry.errors import ImportRefused
from telemetry.sources.kv_events.messages import (
    MOST_BYTES,
    Batch,
    Cleared,
    Event,
    NotEventsError,
    Removed,
    Stored,
    decode,
)

_GZIP = b"\x1f\x8b"
_HEAD = struct.Struct("<I8s")


@dataclass(frozen=True, slots=True)
class Captured:
    """A message of a file. `sizes` stand for the hashes that a list of sizes does not have."""

    place: str
    number: int
    topic: bytes
    batch: Batch
    sizes: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of a file that is no message, and why."""

    why: str


def captured_in(path: Path) -> Iterator[Captured | Unread]:
    """Yields the messages of a file.

    Raises:
        ImportRefused: It cannot be read on; the message says why.
    """
    try:
        with _opened(path) as stream:
            is_json = stream.read(1) == b"{"
            stream.seek(0)
            yield from (_json_lines if is_json else _raw)(path, stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImportRefused(f"{path} is no whole gzip: {error}") from None
    except OSError as error:
        raise ImportRefused(f"{path} cannot be read: {error.strerror or error}") from None


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP)) == _GZIP
    return gzip.open(path, "rb") if is_gzip else path.open("rb")  # type: ignore[return-value]


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
            yield Captured(place, int.from_bytes(number, "big"), b"", decode(payload))
        except NotEventsError as error:
            yield Unread(f"{place}: {error}")
        index += 1


def _json_lines(path: Path, stream: BinaryIO) -> Iterator[Captured | Unread]:
    for number, line in enumerate(iter(lambda: stream.readline(MOST_BYTES + 1), b""), 1):
        place = f"{path.name}:{number}"
        try:
            yield _from_json(place, json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            yield Unread(f"{place}: no message of KV events: {error!r}")


def _from_json(place: str, told: dict[str, Any]) -> Captured:
    events = [_event(each) for each in told["ev"]]
    batch = Batch(
        ts=round(float(told["ts"]) * 1e9),
        rank=None if told["dp"] is None else int(told["dp"]),
        events=[event for event, _ in events if event is not None],
        num_unknown=sum(event is None for event, _ in events),
    )
    sizes = [size for event, size in events if event is not None]
    return Captured(place, int(told["seq"]), str(told["topic"]).encode(), batch, sizes)


def _event(told: dict[str, Any]) -> tuple[Event | None, int]:
    medium, size = told.get("medium"), int(told.get("n") or 0)
    match told["t"]:
        case "BlockStored":
            size_of_block, group = told.get("bs"), told.get("grp")
            return Stored([], block_size=size_of_block, medium=medium, group_idx=group), size
        case "BlockRemoved":
            return Removed([], medium=medium, group_idx=told.get("grp")), size
        case "AllBlocksCleared":
            return Cleared(), size
        case _:
            return None, size
