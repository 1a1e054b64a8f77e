"""Rows say what happened to which blocks, in the order of the message."""

from __future__ import annotations

from typing import Any

from telemetry.sources.kv_events.hashes import BlockHasher
from telemetry.sources.kv_events.messages import decode
from telemetry.sources.kv_events.rows import rows_of
from telemetry.sources.rows import Row
from tests.telemetry.sources.kv_events.builders import payload, removed, stored

HASHER = BlockHasher(bytes(32))


def rows(*events: Any) -> list[Row]:
    return rows_of(decode(payload(*events, ts=7.0)), engine=1, number=9, hasher=HASHER)


def test_a_row_of_each_kind() -> None:
    told = rows(stored(b"a", b"b", parent_block_hash=b"p"), {"type": "AllBlocksCleared"})
    assert [{k: v for k, v in row.items() if v is not None} for row in told] == [
        {
            "engine": 1,
            "ts": 7_000_000_000,
            "batch": 9,
            "event_index": 0,
            "kind": "stored",
            "num_blocks": 2,
            "block_size": 16,
            "medium": "GPU",
            "group_index": 0,
            "parent_hash": HASHER.text(b"p"),
            "block_hashes": HASHER.texts([b"a", b"b"]),
        },
        {"engine": 1, "ts": 7_000_000_000, "batch": 9, "event_index": 1, "kind": "cleared"},
    ]


def test_removals_in_a_run_are_one_row() -> None:
    told = rows(removed(b"a"), removed(b"b"), stored(b"c"), removed(b"d"))
    assert [(row["kind"], row["num_blocks"], row["event_index"]) for row in told] == [
        ("removed", 2, 0),
        ("stored", 1, 1),
        ("removed", 1, 2),
    ]
    assert told[0]["block_hashes"] == HASHER.texts([b"a", b"b"])


def test_removals_from_elsewhere_are_rows_of_their_own() -> None:
    told = rows(removed(b"a"), removed(b"b", medium="CPU"), removed(b"c", group_idx=1))
    assert [(row["medium"], row["group_index"]) for row in told] == [
        ("GPU", None),
        ("CPU", None),
        ("GPU", 1),
    ]


def test_names_from_outside_are_bounded_and_numbers_fit() -> None:
    (row,) = rows(stored(b"a", lora_name="\x1b" + "x" * 9_999, block_size=-1, group_idx=1 << 40))
    assert len(row["adapter"]) == 256
    assert "\x1b" not in row["adapter"]
    assert row["block_size"] is row["group_index"] is None
