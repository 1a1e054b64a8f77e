"""The pool of KV blocks: a free list, reference counts and the index of cached blocks.

    block id     0     1   2   3   4   5   6   7   8   9
               null   [r1  r1][c   c]  .   .  [r2] c   .

    in use      1 2 7          references > 0
    free        5 6 9 | 8 4 3  references = 0, in a list:
                ^ front        blocks with nothing in them, next to be handed out
                        ^ end  blocks that a prefix can still hit, oldest release first

A cached block stays in the index while it is free; it loses its key only when it is handed out
again (lazy eviction), and a hit takes it out of the free list. Block 0 is the null block: it is
never handed out, and is the sentinel of the linked list.

Source: `vllm/v1/core/block_pool.py` is the reference for the order of the free list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BlockKey = bytes
"""Chained hash of a full block and of all before it."""


class BlockPool:
    """Hands out blocks and takes them back.

    Invariants:
        A block is in the free list exactly when its reference count is 0.
        `num_free_cached` is the number of free blocks with a key.

    Args:
        num_blocks: blocks with the null block; `num_blocks - 1` can be handed out.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_usable = num_blocks - 1
        self.num_free = self.num_usable
        self.num_free_cached = 0
        self._references = [0] * num_blocks
        self._keys: list[BlockKey | None] = [None] * num_blocks
        self._next = [*range(1, num_blocks), 0]
        self._previous = [num_blocks - 1, *range(num_blocks - 1)]
        self._index: dict[BlockKey, dict[int, None]] = {}

    def allocate(self, count: int) -> list[int]:
        """Returns `count` blocks from the front of the free list; their keys are forgotten.

        Raises:
            ValueError: fewer are free; the caller has to ask first.
        """
        if count > self.num_free:
            raise ValueError(f"{count} blocks asked for, {self.num_free} are free")
        blocks = []
        for _ in range(count):
            block = self._next[0]
            self._unlink(block)
            self._forget(block)
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def take_cached(self, blocks: Iterable[int]) -> None:
        """Adds a reference to cached blocks, taking those that are free out of the free list."""
        for block in blocks:
            if self._references[block] == 0:
                self._unlink(block)
                self.num_free_cached -= 1
            self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Drops a reference to each block, the last one first, as one batch.

        Of those that become free the ones without a key go to the front, so that the last block
        is the next to be handed out; the ones with a key go to the end, so that the tail of a
        prefix is evicted before its head.
        """
        unhashed = []
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] > 0:
                continue
            self.num_free += 1
            if self._keys[block] is None:
                unhashed.append(block)
            else:
                self.num_free_cached += 1
                self._link(block, after=self._previous[0])
        for block in reversed(unhashed):
            self._link(block, after=0)

    def cache(self, block: int, key: BlockKey) -> None:
        """Enters a full block under its key; equal blocks stay side by side."""
        self._keys[block] = key
        self._index.setdefault(key, {})[block] = None

    def uncache(self, block: int) -> None:
        """Takes a held block out of the index: what its key promises is not in it."""
        key = self._keys[block]
        if key is not None:
            self._drop_key(block, key)

    def find(self, key: BlockKey) -> int | None:
        """Returns the oldest cached block with this key."""
        copies = self._index.get(key)
        return next(iter(copies)) if copies else None

    def is_cached(self, block: int) -> bool:
        """Whether the block has a key."""
        return self._keys[block] is not None

    def is_free(self, block: int) -> bool:
        """Whether nobody holds the block."""
        return self._references[block] == 0

    def reset(self) -> bool:
        """Forgets all keys; returns False, and does nothing, while any block is in use."""
        if self.num_free != self.num_usable:
            return False
        self._keys = [None] * len(self._keys)
        self._index.clear()
        self.num_free_cached = 0
        return True

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Raises AssertionError unless the pool agrees with itself and with all block tables."""
        held: dict[int, int] = {}
        for table in tables:
            for block in filter(None, table):  # the null block is nobody's
                held[block] = held.get(block, 0) + 1
        free = self._free_list()
        assert len(free) == len(set(free)) == self.num_free, "free list and counter differ"
        assert len(free) + len(held) == self.num_usable, "free + used is not the pool"
        assert not held.keys() & set(free), "a block is held and free"
        for block in range(1, self.num_usable + 1):
            expected = held.get(block, 0)
            assert self._references[block] == expected, f"block {block}: wrong reference count"
            key = self._keys[block]
            assert key is None or block in self._index[key], f"block {block}: lost from the index"
        assert sum(len(copies) for copies in self._index.values()) == sum(
            key is not None for key in self._keys
        ), "the index holds a block without a key"
        cached = sum(self._keys[block] is not None for block in free)
        assert cached == self.num_free_cached, "cached free blocks and counter differ"

    def _free_list(self) -> list[int]:
        blocks = []
        block = self._next[0]
        while block != 0:
            blocks.append(block)
            block = self._next[block]
        return blocks

    def _link(self, block: int, *, after: int) -> None:
        before = self._next[after]
        self._next[after] = self._previous[before] = block
        self._previous[block] = after
        self._next[block] = before

    def _unlink(self, block: int) -> None:
        previous, following = self._previous[block], self._next[block]
        self._next[previous] = following
        self._previous[following] = previous
        self.num_free -= 1

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        if key is None:
            return
        self.num_free_cached -= 1
        self._drop_key(block, key)

    def _drop_key(self, block: int, key: BlockKey) -> None:
        self._keys[block] = None
        copies = self._index[key]
        del copies[block]
        if not copies:
            del self._index[key]
