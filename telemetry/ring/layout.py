"""Where everything lies in a ring file.

    0       4 KiB   state: one native 8-byte word each, in the order of `STATE_WORDS`
    4 KiB  28 KiB   JSON: identity of the engine, and name, dtype, offset, stride of every column
    32 KiB 32 KiB   the engine's own description, two slots of 16 KiB written in turn
    64 KiB  ...     regions: steps, events, step_requests, blob, commits

`steps`, `events` and `commits` hold packed rows: one `struct.pack_into` a row costs a fifth of
sixty column stores. `step_requests` holds columns, since a step writes slices of them. Either way
a column is an offset and a stride, which is all that a reader needs. See
docs/decisions/0004-ring-header.md and 0005-ring-rows.md.

Row `n` of a region lies at place `n % capacity`. Numbers only grow; a NULL is stored as
`records.NULLS` says (a float as NaN).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from telemetry.records import NULLS, Column, StepRequestRow, StepRow, columns_of
from telemetry.tables import event_columns

MAGIC = int.from_bytes(b"STEPRING", "little")
LAYOUT_VERSION = 1

STATE_BYTES = 4096
LAYOUT_OFFSET = STATE_BYTES
DESCRIPTION_OFFSET = 32 * 1024
DESCRIPTION_SLOT_BYTES = 16 * 1024
HEADER_BYTES = 64 * 1024

STATE_WORDS = (
    "magic",
    "layout_version",
    "engine",
    "pid",
    "wall_anchor_ns",
    "monotonic_anchor_ns",
    "layout_bytes",
    "published",
    "heartbeat_ns",
    "current_step",
    "phase",
    "phase_since_ns",
    "num_steps",
    "num_events",
    "num_preemptions",
    "recorder_errors",
    "closed",
    "rss_bytes",
    "description_version",
    "reserved_steps",
    "reserved_events",
    "reserved_step_requests",
    "reserved_blob",
)
"""Words of the state page. `reserved_*` is how far a region is, or is about to be, overwritten."""

WORD = {name: index for index, name in enumerate(STATE_WORDS)}

ROW_REGIONS = ("steps", "events", "step_requests")
"""Regions whose rows are numbered and read by position."""

SHARES = {
    "steps": 0.18,
    "events": 0.16,
    "step_requests": 0.48,
    "blob": 0.10,
    "commits": 0.08,
}
"""What part of the ring each region gets: dense rows never push out steps or events."""

COMMIT_COLUMNS = (
    ("step", "u8"),
    ("ts", "i8"),
    *((f"{region}_{end}", "u8") for region in (*ROW_REGIONS, "blob") for end in ("begin", "end")),
)
"""A commit: its step (NULL between steps), its time, and what it added to each region."""

BLOB_COLUMNS = (("blob_offset", "u8"), ("blob_bytes", "u4"), ("content_bytes", "u4"))
"""Where an event's text lies: bytes written before it, and how many bytes it has. Behind them lie
so many bytes of content hashes (NULL: it has none)."""


IN_BLOB = frozenset({"str", "u4[]", "hashes"})
"""Column types of no fixed width: they lie in the blob, as JSON; hashes behind it, as they are."""

HASHES_BEGIN = b"\0"
"""Stands between an event's JSON, which holds no such byte, and its hashes."""


def stored_dtype(dtype: str) -> str:
    """Returns the numpy type in which the ring keeps a column of type `dtype`."""
    return "u1" if dtype == "bool" else dtype


def null_of(dtype: str) -> int | float:
    """Returns how the ring stores NULL in a column of (stored) type `dtype`."""
    return float("nan") if dtype == "f8" else NULLS[dtype]


@dataclass(frozen=True, slots=True)
class RingColumn:
    """One column: its bytes start at `offset` in the file and repeat every `stride` bytes."""

    name: str
    dtype: str
    offset: int
    stride: int


@dataclass(frozen=True, slots=True)
class Region:
    """One region. `row_bytes` is 0 where it holds columns one after the other, not rows."""

    name: str
    offset: int
    capacity: int
    row_bytes: int
    columns: tuple[RingColumn, ...]

    def row_dtype(self) -> np.dtype[np.void]:
        """Returns the numpy type of a packed row."""
        return np.dtype(
            {
                "names": [c.name for c in self.columns],
                "formats": [f"<{c.dtype}" for c in self.columns],
                "offsets": [c.offset - self.offset for c in self.columns],
                "itemsize": self.row_bytes,
            }
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """All regions of a ring, and its size."""

    regions: dict[str, Region]
    ring_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Returns the layout as a reader finds it in the ring."""
        return {
            "state": WORD,
            "null": {**NULLS, "f8": "nan"},
            "regions": {
                r.name: {
                    "offset": r.offset,
                    "capacity": r.capacity,
                    "row_bytes": r.row_bytes,
                    "columns": [[c.name, c.dtype, c.offset, c.stride] for c in r.columns],
                }
                for r in self.regions.values()
            },
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], ring_bytes: int) -> Layout:
        """Returns the layout that a ring says it has."""
        regions = {
            name: Region(
                name,
                r["offset"],
                r["capacity"],
                r["row_bytes"],
                tuple(RingColumn(*column) for column in r["columns"]),
            )
            for name, r in data["regions"].items()
        }
        return cls(regions, ring_bytes)


def plan(ring_bytes: int) -> Layout:
    """Returns the layout of a ring of `ring_bytes` bytes in all.

    Raises:
        ValueError: A region would not hold a single row.
    """
    regions = {}
    offset = HEADER_BYTES
    for name, share in SHARES.items():
        size = int((ring_bytes - HEADER_BYTES) * share) // 64 * 64
        regions[name] = _region(name, offset, size)
        if regions[name].capacity < 1:
            raise ValueError(
                f"a ring of {ring_bytes:,} bytes has no room for a row of {name}: "
                "give it at least 1 MiB (STEPSCOPE_RING_MB)"
            )
        offset += size
    return Layout(regions, ring_bytes)


def _region(name: str, offset: int, size: int) -> Region:
    columns = _columns(name)
    row_bytes = sum(np.dtype(dtype).itemsize for _, dtype in columns)
    if name == "step_requests":
        capacity = size // row_bytes // 64 * 64
        return Region(name, offset, capacity, 0, _side_by_side(columns, offset, capacity))
    if name == "blob":
        return Region(name, offset, size, 0, ())
    return Region(name, offset, size // row_bytes, row_bytes, _packed(columns, offset, row_bytes))


def _columns(name: str) -> list[tuple[str, str]]:
    if name == "steps":
        return _fixed_width(columns_of(StepRow))
    if name == "events":
        return [*_fixed_width(event_columns()), *BLOB_COLUMNS]
    if name == "step_requests":
        return [c for c in _fixed_width(columns_of(StepRequestRow)) if c[0] != "step"]
    return list(COMMIT_COLUMNS) if name == "commits" else []


def _fixed_width(columns: Iterable[Column]) -> list[tuple[str, str]]:
    return [
        (column.name, stored_dtype(column.dtype))
        for column in columns
        if column.dtype not in IN_BLOB
    ]


def _packed(columns: list[tuple[str, str]], offset: int, row_bytes: int) -> tuple[RingColumn, ...]:
    packed = []
    for name, dtype in columns:
        packed.append(RingColumn(name, dtype, offset, row_bytes))
        offset += np.dtype(dtype).itemsize
    return tuple(packed)


def _side_by_side(
    columns: list[tuple[str, str]], offset: int, capacity: int
) -> tuple[RingColumn, ...]:
    columnar = []
    for name, dtype in columns:
        size = np.dtype(dtype).itemsize
        columnar.append(RingColumn(name, dtype, offset, size))
        offset += size * capacity
    return tuple(columnar)


def layout_bytes(identity: dict[str, Any], layout: Layout) -> bytes:
    """Returns the JSON that a ring carries: its layout and the engine's identity.

    Raises:
        ValueError: It does not fit into its part of the header.
    """
    data = json.dumps({**identity, **layout.to_json()}, separators=(",", ":")).encode()
    limit = DESCRIPTION_OFFSET - LAYOUT_OFFSET
    if len(data) > limit:
        raise ValueError(f"the ring's layout takes {len(data):,} bytes, the header has {limit:,}")
    return data
