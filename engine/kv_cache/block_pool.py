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

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from engine.kv_cache.block_index import BlockIndex, BlockKey
from engine.kv_cache.pool_books import PoolBooks


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
        self._index = BlockIndex()
        self.find = self._index.oldest
        """Returns the oldest cached block with a key; None if there is none."""

    def allocate(self, count: int) -> list[int]:
        """Returns `count` blocks from the front of the free list; their keys are forgotten.

        Raises:
            ValueError: fewer are free; the caller has to ask first.
        """
        if count > self.num_free:
            raise ValueError(f"{count} blocks asked for, {self.num_free} are free")
        blocks = []
        block = 0
        for _ in range(count):
            block = self._next[block]
            self._references[block] = 1
            key = self._keys[block]
            if key is not None:
                self.num_free_cached -= 1
                self._drop_key(block, key)
            blocks.append(block)
        self._cut_front(block)
        self.num_free -= count
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
        unhashed: list[int] = []
        cached: list[int] = []
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                (unhashed if self._keys[block] is None else cached).append(block)
        self.num_free += len(unhashed) + len(cached)
        self.num_free_cached += len(cached)
        self._link(unhashed, after=0)
        self._link(cached, after=self._previous[0])

    def cache(self, block: int, key: BlockKey) -> None:
        """Enters a full block under its key; equal blocks stay side by side."""
        self._keys[block] = key
        self._index.add(key, block)

    def uncache(self, block: int) -> None:
        """Takes a held block out of the index: what its key promises is not in it."""
        key = self._keys[block]
        if key is not None:
            self._drop_key(block, key)

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

    def books(self) -> PoolBooks:
        """Returns its books, for who checks them; nobody else should look."""
        return PoolBooks(
            num_usable=self.num_usable,
            num_free=self.num_free,
            num_free_cached=self.num_free_cached,
            free_list=self._free_list(),
            references=self._references,
            keys=self._keys,
            index=self._index.as_mapping(),
        )

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Raises AssertionError unless the pool agrees with itself and with all block tables."""
        entries = Counter(chain.from_iterable(tables))
        del entries[0]
        problems = list(self.books().problems(entries))
        if problems:
            raise AssertionError("; ".join(problems))

    def _free_list(self) -> list[int]:
        """Returns the free list from its front; at most one block too many, should it be broken."""
        blocks: list[int] = []
        block = self._next[0]
        while 0 < block <= self.num_usable and len(blocks) <= self.num_usable:
            blocks.append(block)
            block = self._next[block]
        return blocks

    def _cut_front(self, last: int) -> None:
        """Takes the blocks up to the last one given off the front of the list."""
        first = self._next[last]
        self._next[0] = first
        self._previous[first] = 0

    def _link(self, blocks: list[int], *, after: int) -> None:
        """Puts blocks into the list, in their order."""
        following = self._next[after]
        for block in blocks:
            self._next[after] = block
            self._previous[block] = after
            after = block
        self._next[after] = following
        self._previous[following] = after

    def _unlink(self, block: int) -> None:
        previous, following = self._previous[block], self._next[block]
        self._next[previous] = following
        self._previous[following] = previous
        self.num_free -= 1

    def _drop_key(self, block: int, key: BlockKey) -> None:
        self._keys[block] = None
        self._index.drop(key, block)
