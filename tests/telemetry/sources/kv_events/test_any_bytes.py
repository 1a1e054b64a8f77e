"""Whatever bytes come: events, or a refusal in words; never anything else."""

from __future__ import annotations

from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from telemetry.sources.kv_events.hashes import BlockHasher
from telemetry.sources.kv_events.messages import NotEventsError, decode
from telemetry.sources.kv_events.rows import rows_of
from tests.telemetry.sources.kv_events.builders import payload, removed, stored

WHOLE = payload(stored(b"a", 5), removed(b"a"), {"type": "AllBlocksCleared"}, ["BlockRemoved", [1]])
HASHER = BlockHasher(bytes(32))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.binary(max_size=9)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)  # fmt: skip
NAMES = ("type", "block_hashes", "block_size", "medium", "lora_name", "group_idx", "lora_id")
EVENTS = st.dictionaries(st.sampled_from(NAMES), VALUES | st.sampled_from(["BlockStored"]))
ARRAYS = st.lists(VALUES, max_size=8).map(lambda rest: ["BlockStored", *rest])


def read(content: bytes) -> None:
    with suppress(NotEventsError):
        rows_of(decode(content), engine=1, number=0, hasher=HASHER)


@given(content=st.binary(max_size=200))
def test_random_bytes(content: bytes) -> None:
    read(content)


@given(
    at=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255), length=st.integers(1, len(WHOLE))
)
def test_a_message_with_a_wrong_byte(at: int, byte: int, length: int) -> None:
    read((WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :])[:length])


@given(events=st.lists(EVENTS | ARRAYS | VALUES, max_size=3), ts=st.floats())
def test_events_of_other_shapes(events: list[object], ts: float) -> None:
    read(msgspec.msgpack.encode([ts, events, 0]))
