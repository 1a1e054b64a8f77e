"""One message of vLLM's KV events: MessagePack of a time, events, and a data-parallel rank.

An event is a map, and was an array in older versions: `["BlockStored", hashes, parent, token ids,
block size, adapter number, medium, ...]`. Fields that are not named here are skipped by
the decoder, unread: token ids, cache salts and multi-modal keys among them. In an array, where the
place counts, token ids are passed over as bytes.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

MOST_BYTES = 16 << 20
"""Of a message. A step of 100,000 new tokens takes about half a megabyte."""
MOST_EVENTS = 100_000
MOST_BLOCKS = 1_000_000

BlockHash: TypeAlias = bytes | int
_Hashes = Annotated[list[BlockHash], Meta(max_length=MOST_BLOCKS)]


class NotEventsError(ValueError):
    """Bytes are no message of KV events; the message says why."""


class Stored(Struct, tag="BlockStored"):
    """Blocks have entered the cache."""

    block_hashes: _Hashes
    parent_block_hash: BlockHash | None = None
    block_size: int | None = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    group_idx: int | None = None


class Removed(Struct, tag="BlockRemoved"):
    """Blocks have left the cache."""

    block_hashes: _Hashes
    medium: str | None = None
    group_idx: int | None = None


class Cleared(Struct, tag="AllBlocksCleared"):
    """The cache was emptied."""


class _StoredArray(Struct, tag="BlockStored", array_like=True):
    block_hashes: _Hashes
    parent_block_hash: BlockHash | None
    token_ids: Raw
    block_size: int | None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None


class _RemovedArray(Struct, tag="BlockRemoved", array_like=True):
    block_hashes: _Hashes
    medium: str | None = None


class _ClearedArray(Struct, tag="AllBlocksCleared", array_like=True):
    pass


class _Batch(Struct, array_like=True):
    ts: float
    events: Annotated[list[Raw], Meta(max_length=MOST_EVENTS)]
    data_parallel_rank: int | None = None


Event: TypeAlias = Stored | Removed | Cleared


class Batch(Struct, frozen=True):
    """A message. `num_unknown` are events of kinds, or shapes, that are not known here."""

    ts: int
    rank: int | None
    events: list[Event]
    num_unknown: int


_batches = msgspec.msgpack.Decoder(_Batch)
_maps = msgspec.msgpack.Decoder(Stored | Removed | Cleared)
_arrays = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)
_DECODING = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def decode(payload: bytes) -> Batch:
    """Returns the message in `payload`.

    Raises:
        NotEventsError: It is none.
    """
    try:
        batch = _batches.decode(payload)
    except _DECODING as error:
        raise NotEventsError(f"no message of KV events: {error}") from None
    if not 0 < batch.ts < math.inf:
        raise NotEventsError(f"no message of KV events: its time is {batch.ts}")
    events: list[Event] = []
    for raw in batch.events:
        event = _event(raw)
        if event is not None:
            events.append(event)
    return Batch(
        ts=round(min(batch.ts, 9e9) * 1e9),
        rank=batch.data_parallel_rank,
        events=events,
        num_unknown=len(batch.events) - len(events),
    )


def _event(raw: Raw) -> Event | None:
    try:
        if _is_map(raw):
            return _maps.decode(raw)
        found = _arrays.decode(raw)
    except _DECODING:
        return None
    match found:
        case _StoredArray():
            return Stored(
                block_hashes=found.block_hashes,
                parent_block_hash=found.parent_block_hash,
                block_size=found.block_size,
                lora_id=found.lora_id,
                medium=found.medium,
                lora_name=found.lora_name,
            )
        case _RemovedArray():
            return Removed(block_hashes=found.block_hashes, medium=found.medium)
        case _ClearedArray():
            return Cleared()


def _is_map(raw: Raw) -> bool:
    first = bytes(memoryview(raw)[:1])
    return b"\x80" <= first <= b"\x8f" or first in (b"\xde", b"\xdf")
