"""What a ring may say of itself. A file that says anything else is refused, whatever it is.

A ring is written by another process, and whoever may write into its folder may put a file there. So
nothing of it is believed unseen: places lie inside the file, commits follow each other and add no
more than fits, times lie where the engine's clock can have been. What passes costs bounded memory.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from telemetry.errors import RingError
from telemetry.ring import layout as lay
from telemetry.ring.batch import Array
from telemetry.ring.header import boot_id

NONSENSE = (
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
    BufferError,
    RecursionError,
    MemoryError,
)
"""What reading a damaged ring may raise: its content costs that ring and no other."""

NS_PER_DAY = 86_400 * 1_000_000_000
EARLIEST_NS = 7 * NS_PER_DAY
"""How long before the ring's own beginning a time may lie."""
LATEST_NS = NS_PER_DAY
"""How far ahead of the present, on the engine's clock, a time may lie."""
LONGEST_RUN_NS = 3650 * NS_PER_DAY
"""How long an engine can have run whose host has been started anew since."""

_NUM_WORDS = lay.STATE_BYTES // 8


def check_words(words: Any) -> dict[str, int]:
    """Returns the places of the header's words.

    Raises:
        RingError: One lies outside the header.
    """
    for name, index in dict(words).items():
        if not isinstance(index, int) or not 0 <= index < _NUM_WORDS:
            raise RingError(f"the word {name!r} lies at {index!r}: the header has {_NUM_WORDS:,}")
    return dict(words)


def check_layout(layout: lay.Layout) -> None:
    """Checks that every region lies inside the file, with room for a row at least.

    Raises:
        RingError: One does not.
    """
    for name in (*lay.SHARES, *layout.regions):
        region = layout.regions.get(name)
        if region is None:
            raise RingError(f"it has no region {name}")
        numbers = (region.offset, region.capacity, region.row_bytes)
        if not all(isinstance(number, int) for number in numbers):
            raise RingError(f"the region {name} has places {numbers!r}: they are whole numbers")
        size = region.capacity * max(region.row_bytes, 1)
        if region.capacity < 1 or region.row_bytes < 0:
            raise RingError(f"the region {name} has no room: {region.capacity:,} rows")
        if not lay.HEADER_BYTES <= region.offset <= layout.ring_bytes - size:
            raise RingError(
                f"the region {name} lies at {region.offset:,} with {size:,} bytes, "
                f"the file has {layout.ring_bytes:,}"
            )


def check_commits(commits: Array, layout: lay.Layout) -> None:
    """Checks that commits follow each other and that none adds more than its region holds.

    Raises:
        RingError: They do not: torn, or overwritten by something else.
    """
    for name in (*lay.ROW_REGIONS, "blob"):
        begins = commits[f"{name}_begin"].astype(np.int64)
        ends = commits[f"{name}_end"].astype(np.int64)
        sizes = ends - begins
        capacity = layout.regions[name].capacity
        if begins[0] < 0 or (sizes < 0).any() or (sizes > capacity).any():
            raise RingError(f"a commit adds {int(sizes.max()):,} to {name}, which has {capacity:,}")
        if (begins[1:] != ends[:-1]).any():
            raise RingError(f"commits do not follow each other in {name}")


class TimeSpan:
    """When an engine can have written: from its beginning to the present, both on its own clock.

    The host's wall clock has no say: it may be set while the engine runs.
    """

    def __init__(self, wall_anchor_ns: int, monotonic_anchor_ns: int, boot: Any) -> None:
        self._begin = wall_anchor_ns
        self._monotonic = monotonic_anchor_ns
        self._is_this_boot = boot == boot_id()

    def check(self, ts: int, what: str) -> None:
        """Checks one time.

        Raises:
            RingError: The engine cannot have written it.
        """
        elapsed = LONGEST_RUN_NS
        if self._is_this_boot:
            elapsed = time.monotonic_ns() - self._monotonic + LATEST_NS
        if not self._begin - EARLIEST_NS <= ts <= self._begin + elapsed:
            days = (ts - self._begin) / NS_PER_DAY
            raise RingError(f"{what} lies {days:,.1f} days after the ring's beginning")
