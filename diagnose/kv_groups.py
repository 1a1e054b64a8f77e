"""How many KV blocks a request's tokens take.

Layers that keep the same tokens are a group with a block table of its own, and all groups take
blocks of one pool: a token has a place in each. A sliding-window group keeps only what its window
can still see.

Source: the groups of `engine.config.KVGroupConfig`, and vLLM's `kv_cache_groups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KVGroup:
    """One group: tokens of a block, and of its window (None: it keeps everything)."""

    block_size: int
    sliding_window: int | None = None

    @property
    def most_blocks(self) -> int | None:
        """Blocks that a window takes at most, wherever it begins in a block."""
        window = self.sliding_window
        return None if window is None else -(-window // self.block_size) + 1

    def blocks(self, num_tokens: Ints) -> Ints:
        """Returns the blocks that each number of tokens takes."""
        filled = -(-num_tokens // self.block_size)
        return filled if self.most_blocks is None else np.minimum(filled, self.most_blocks)

    def blocks_sql(self, num_tokens: str) -> str:
        """Returns the same as an SQL expression over one."""
        filled = f"ceil(({num_tokens}) / {self.block_size})::BIGINT"
        return filled if self.most_blocks is None else f"least({filled}, {self.most_blocks})"


def read_groups(described: Any, block_size: int | None) -> tuple[KVGroup, ...]:
    """Returns the groups of an engine as its settings describe them; one where they do not.

    There are none where the block size is not known, or a kind of group is not one of ours.
    """
    if not block_size:
        return ()
    if not isinstance(described, list) or not described:
        return (KVGroup(block_size),)
    groups = tuple(_read_group(each) for each in described)
    return () if None in groups else tuple(group for group in groups if group is not None)


def _read_group(described: Any) -> KVGroup | None:
    match described:
        case {"kind": "full", "block_size": int(size)} if size > 0:
            return KVGroup(size)
        case {
            "kind": "sliding_window",
            "block_size": int(size),
            "sliding_window": int(window),
        } if size > 0 and window > 0:
            return KVGroup(size, window)
    return None


def blocks_of(groups: tuple[KVGroup, ...], num_tokens: Ints) -> Ints:
    """Returns the blocks that each number of tokens takes in all groups together."""
    total = np.zeros_like(num_tokens)
    for group in groups:
        total = total + group.blocks(num_tokens)
    return total


def most_tokens(groups: tuple[KVGroup, ...], num_blocks: int) -> int:
    """Returns the longest request that so many blocks hold; at most what one group would."""
    low, high = 0, num_blocks * groups[0].block_size
    while low < high:
        middle = (low + high + 1) // 2
        if int(blocks_of(groups, np.array(middle))) <= num_blocks:
            low = middle
        else:
            high = middle - 1
    return low
