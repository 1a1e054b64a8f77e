"""KV blocks by state: free and empty, free and still to be hit, and who holds the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.records import StepRow
from telemetry.sources.vllm.guard import Guard

FREE_LIST_METHODS = ("popleft", "popleft_n", "remove", "append", "append_n", "prepend_n")
"""How blocks leave and join vLLM's free list."""
POOL_METHODS = ("evict_blocks", "reset_prefix_cache")
"""How blocks that may be free lose their contents."""


class Blocks:
    """Counts a scheduler's blocks.

    vLLM does not know how many of its free blocks a prefix can still hit; they are counted here as
    they join and leave the free list.

    Invariants:
        `num_free_cached` is the number of blocks in the free list that have a hash, as long as
        `is_watching`.
    """

    def __init__(self, scheduler: Any) -> None:
        manager = scheduler.kv_cache_manager
        self.pool = manager.block_pool
        self.num_free_cached = 0
        self.is_watching = not self.pool.enable_caching
        self._managers = manager.coordinator.single_type_managers
        self._table: Any = _only_full_table(self._managers)
        self._scheduler = scheduler
        has_null = getattr(self.pool, "null_block", None) is not None
        self._num_usable = self.pool.num_gpu_blocks - has_null

    # -------------------------------------------------------------------------- the free list

    def watch_free_list(self, guard: Guard) -> None:
        """Counts cached free blocks from now on."""
        if not self.pool.enable_caching:
            return
        queue = self.pool.free_block_queue
        for name in FREE_LIST_METHODS:
            after = getattr(self, f"_after_{name}")
            setattr(queue, name, guard.listen(getattr(queue, name), after))
        for name in POOL_METHODS:
            setattr(self.pool, name, guard.listen(getattr(self.pool, name), self._recount))
        self._recount()
        self.is_watching = True

    def count_cached_free_blocks(self) -> int:
        """Returns the number of free blocks with a hash, by looking at each of them."""
        free = self.pool.free_block_queue.get_all_free_blocks()
        return sum(block.block_hash is not None for block in free)

    def _recount(self, *_: Any) -> None:
        self.num_free_cached = self.count_cached_free_blocks()

    def _after_popleft_n(self, blocks: Any, n: int) -> None:
        for block in blocks:
            if block.block_hash is not None:
                self.num_free_cached -= 1

    def _after_append_n(self, _: None, blocks: Any) -> None:
        for block in blocks:
            if block.block_hash is not None:
                self.num_free_cached += 1

    def _after_popleft(self, block: Any) -> None:
        self.num_free_cached -= block.block_hash is not None

    def _after_remove(self, _: None, block: Any) -> None:
        self.num_free_cached -= block.block_hash is not None

    def _after_append(self, _: None, block: Any) -> None:
        self.num_free_cached += block.block_hash is not None

    _after_prepend_n = _after_append_n

    # -------------------------------------------------------------------------- who holds what

    @property
    def plain_block_size(self) -> int | None:
        """Tokens of a block where there is one KV group, and requests keep all their blocks."""
        return None if self._table is None else int(self._managers[0].block_size)

    @property
    def num_free(self) -> int:
        """Free blocks, whatever is in them."""
        return int(self.pool.get_num_free_blocks())

    def num_held(self, request_id: str) -> int:
        """Returns the blocks that a request holds; those behind a sliding window are gone."""
        if self._table is not None:
            return len(self._table.get(request_id, ()))
        held = 0
        for manager in self._managers:
            for block in manager.req_to_blocks.get(request_id, ()):
                held += not block.is_null
        return held

    def all_held(self, request_ids: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Returns the blocks that each of some requests holds."""
        if self._table is None:
            return np.array([self.num_held(name) for name in request_ids], dtype=np.uint32)
        table = self._table
        return np.array([len(table.get(name, ())) for name in request_ids], dtype=np.uint32)

    @property
    def num_deferred(self) -> int:
        """Blocks whose release waits for a step in flight."""
        return sum(len(blocks) for _, blocks in self._scheduler.deferred_frees)

    def count(self, row: StepRow, kept: Collection[str]) -> None:
        """Counts all blocks into a step's row; what nobody else has is of running requests.

        Args:
            kept: requests that have ended and whose blocks a transfer still needs.
        """
        scheduler = self._scheduler
        waiting = finished = deferred = 0
        if row.num_kv_holding_waiting:
            waiting = sum(self.num_held(r.request_id) for r in scheduler.kv_holding_waiting)
        if kept:
            finished = sum(map(self.num_held, kept))
        if scheduler.deferred_frees:
            deferred = self.num_deferred
        free = self.num_free
        if self.is_watching:
            row.num_blocks_free_cached = self.num_free_cached
            row.num_blocks_free_unhashed = free - self.num_free_cached
        row.num_blocks_running = max(0, self._num_usable - free - waiting - finished - deferred)
        row.num_blocks_waiting, row.num_blocks_finished = waiting, finished
        row.num_blocks_deferred_free = deferred


def _only_full_table(managers: Sequence[Any]) -> Any:
    """Returns the block tables where there is one group, whose requests keep all their blocks."""
    names = [type(manager).__name__ for manager in managers]
    return managers[0].req_to_blocks if names == ["FullAttentionManager"] else None
