"""One message of vLLM's KV events: MessagePack of a time, events, and a data-parallel rank.

An event is a map, and was an array in older versions: `["BlockStored", hashes, parent, token ids,
block size, adapter number, medium, ...]`. Fields that are not named here are skipped by
the decoder, unread: token ids, cache salts and multi-modal keys among them. In an array, where the
place counts, token ids are passed over as bytes.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

MOST_BYTES = 16 << 20
"""Of a message. A step of 100,000 new tokens takes about half a megabyte."""
MOST_EVENTS = 100_000
MOST_BLOCKS = 200_000
"""Of a message: 3 million tokens in blocks of 16."""

BlockHash: TypeAlias = bytes | int
_Hashes = Annotated[list[BlockHash], Meta(max_length=MOST_BLOCKS)]


class NotEventsError(ValueError):
    """Bytes are no message of KV events; the message says why."""


class CacheEvent(Struct, frozen=True, kw_only=True):
    """What happened to blocks of the prefix cache. `hashes` is None where the source tells none."""

    kind: Literal["stored", "removed", "cleared"]
    num_blocks: int | None = None
    hashes: list[BlockHash] | None = None
    parent: BlockHash | None = None
    block_size: int | None = None
    medium: str | None = None
    adapter: str | None = None
    group: int | None = None


class Batch(Struct, frozen=True, kw_only=True):
    """A message. `num_unknown` are events of kinds, or shapes, that are not known here."""

    ts: int
    rank: int | None
    events: list[CacheEvent]
    num_unknown: int


# ------------------------------------------------------------------------------- on the wire


class _Stored(Struct, tag="BlockStored"):
    block_hashes: _Hashes
    parent_block_hash: BlockHash | None = None
    block_size: int | None = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    group_idx: int | None = None


class _Removed(Struct, tag="BlockRemoved"):
    block_hashes: _Hashes
    medium: str | None = None
    group_idx: int | None = None


class _Cleared(Struct, tag="AllBlocksCleared"):
    pass


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


_batches = msgspec.msgpack.Decoder(_Batch)
_maps = msgspec.msgpack.Decoder(_Stored | _Removed | _Cleared)
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
    events = [event for event in map(_event, batch.events) if event is not None]
    if (num_blocks := sum(event.num_blocks or 0 for event in events)) > MOST_BLOCKS:
        raise NotEventsError(
            f"no message of KV events: {num_blocks:,} blocks, and {MOST_BLOCKS:,} is the most"
        )
    return Batch(
        ts=nanoseconds(min(batch.ts, 9e9)),
        rank=batch.data_parallel_rank,
        events=events,
        num_unknown=len(batch.events) - len(events),
    )


def nanoseconds(seconds: float) -> int:
    """Returns a time in ns, to the last digit that the float has."""
    whole, part = divmod(seconds, 1)
    return int(whole) * 10**9 + round(part * 1e9)


def _event(raw: Raw) -> CacheEvent | None:
    try:
        found = (_maps if _is_map(raw) else _arrays).decode(raw)
    except _DECODING:
        return None
    match found:
        case _Stored() | _StoredArray():
            return CacheEvent(
                kind="stored",
                num_blocks=len(found.block_hashes),
                hashes=found.block_hashes,
                parent=found.parent_block_hash,
                block_size=found.block_size,
                medium=found.medium,
                adapter=found.lora_name or (None if found.lora_id is None else str(found.lora_id)),
                group=getattr(found, "group_idx", None),
            )
        case _Removed() | _RemovedArray():
            return CacheEvent(
                kind="removed",
                num_blocks=len(found.block_hashes),
                hashes=found.block_hashes,
                medium=found.medium,
                group=getattr(found, "group_idx", None),
            )
    return CacheEvent(kind="cleared")


def _is_map(raw: Raw) -> bool:
    first = bytes(memoryview(raw)[:1])
    return b"\x80" <= first <= b"\x8f" or first in (b"\xde", b"\xdf")
