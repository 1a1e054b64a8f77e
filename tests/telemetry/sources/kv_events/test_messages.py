"""Messages of any version of vLLM, read without the token ids in them."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgspec
import pytest

from telemetry.sources.kv_events import messages
from telemetry.sources.kv_events.messages import CacheEvent, NotEventsError, decode
from tests.telemetry.sources.kv_events.builders import TOKENS, payload, removed, stored


def events_of(*events: Any) -> list[CacheEvent]:
    return decode(payload(*events)).events


def test_blocks_stored() -> None:
    told = stored(b"a", 5, parent_block_hash=b"p", lora_name="sql", group_idx=2, medium="CPU")
    assert events_of(told) == [
        CacheEvent(
            kind="stored",
            num_blocks=2,
            hashes=[b"a", 5],
            parent=b"p",
            block_size=16,
            medium="CPU",
            adapter="sql",
            group=2,
        )
    ]


def test_blocks_removed_and_everything_cleared() -> None:
    assert events_of(removed(b"a", group_idx=1), {"type": "AllBlocksCleared"}) == [
        CacheEvent(kind="removed", num_blocks=1, hashes=[b"a"], medium="GPU", group=1),
        CacheEvent(kind="cleared"),
    ]


def test_events_as_older_versions_wrote_them() -> None:
    assert events_of(
        ["BlockStored", [1, 2], None, TOKENS, 16, 7],
        ["BlockStored", [b"a"], b"p", TOKENS, 32, None, "GPU", "sql"],
        ["BlockRemoved", [1]],
        ["BlockRemoved", [2], "CPU"],
        ["AllBlocksCleared"],
    ) == [
        CacheEvent(kind="stored", num_blocks=2, hashes=[1, 2], block_size=16, adapter="7"),
        CacheEvent(
            kind="stored",
            num_blocks=1,
            hashes=[b"a"],
            parent=b"p",
            block_size=32,
            medium="GPU",
            adapter="sql",
        ),
        CacheEvent(kind="removed", num_blocks=1, hashes=[1]),
        CacheEvent(kind="removed", num_blocks=1, hashes=[2], medium="CPU"),
        CacheEvent(kind="cleared"),
    ]


def test_time_and_rank() -> None:
    batch = decode(payload(ts=1_795_953_154.25, rank=3))
    assert (batch.ts, batch.rank) == (1_795_953_154_250_000_000, 3)
    assert decode(msgspec.msgpack.encode([1.0, []])).rank is None


@pytest.mark.parametrize(
    "told",
    [
        stored(b"a", extra_keys=[["my salt"]], session_id="me"),
        ["BlockStored", [1], None, TOKENS, 16],
    ],
)
def test_no_token_salt_or_session_is_read(told: Any) -> None:
    text = repr(events_of(told))
    assert str(TOKENS[0]) not in text
    assert "my salt" not in text
    assert "session" not in text


def test_kinds_and_shapes_of_a_newer_version_are_counted() -> None:
    batch = decode(payload({"type": "BlockMoved", "x": 1}, 7, ["New", 1], stored(b"a"), {}))
    assert (batch.num_unknown, len(batch.events)) == (4, 1)


def test_fields_of_a_newer_version_are_left_out() -> None:
    newer = msgspec.msgpack.encode([1.0, [stored(b"a", new=[1])], 0, "new", 5])
    assert len(decode(newer).events) == 1


HUGE_ARRAY = b"\xdd\xff\xff\xff\xff"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        msgspec.msgpack.encode({"ts": 1}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode(["now", []]),
        msgspec.msgpack.encode([math.nan, []]),
        msgspec.msgpack.encode([-1.0, []]),
        b"\x92\xcb" + struct.pack(">d", 1.0) + HUGE_ARRAY,
        b"\x92\xcb" + struct.pack(">d", 1.0) + b"\xdd\x00\x02\x00\x00" + b"\xc0" * 0x20000,
        b"\x91" * 100_000 + b"\x01",
        payload(stored(b"a"))[:-3],
    ],
    ids=range(11),
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(NotEventsError, match="no message of KV events"):
        decode(content)


def test_a_message_has_only_so_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_BLOCKS", 3)
    assert len(decode(payload(removed(1, 2), removed(3))).events) == 2
    with pytest.raises(NotEventsError, match="4 blocks, and 3 is the most"):
        decode(payload(removed(1, 2), removed(3, 4)))
