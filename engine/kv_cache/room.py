"""Whether the pool has room for what a request wants, and which number decides if it has not.

Nothing is taken here: these are the questions that come before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.kv_cache.block_pool import BlockPool
from engine.kv_cache.group import KVGroup
from engine.kv_cache.prefix_hits import PrefixHits
from engine.request import Request
from telemetry.vocabulary import StopReason


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an admission did not get its blocks: the check that failed, and its number."""

    reason: StopReason
    num_blocks_needed: int


class Room:
    """Compares what requests need in all groups with what the pool has free."""

    def __init__(self, config: EngineConfig, groups: Sequence[KVGroup], pool: BlockPool) -> None:
        scheduler = config.scheduler
        self._groups = groups
        self._pool = pool
        self._max_model_len = scheduler.max_model_len
        self._lookahead = config.speculation.num_lookahead_tokens
        self._watermark_blocks = config.watermark_blocks
        self._reserves_whole_prompt = scheduler.scheduler_reserve_full_isl
        self._most_in_flight = scheduler.max_num_batched_tokens * scheduler.max_concurrent_batches

    # ------------------------------------------------------------------------------ admissions

    def shortage_for_chunk(
        self, request: Request, hits: PrefixHits, start: int, end: int, *, spare_watermark: bool
    ) -> Shortage | None:
        """Returns what an admission lacks for its tokens from `start` to `end`, and for all.

        Args:
            spare_watermark: leave the watermark free, as when something runs already.
        """
        kept = self._watermark_blocks if spare_watermark else 0
        checks = [(StopReason.kv_blocks_chunk, self._chunk_blocks(hits, start, end))]
        if self._reserves_whole_prompt:
            whole = self._hits_in_free_list(hits)
            for group, blocks in zip(self._groups, hits.blocks, strict=True):
                there = max(len(blocks), group.num_expired(start))
                whole += max(0, self._most_blocks(group, request) - there)
            checks.insert(0, (StopReason.kv_blocks_whole_prompt, whole))
        for reason, needed in checks:
            if needed > self._pool.num_free:
                return Shortage(reason, needed)
            if needed + kept > self._pool.num_free:
                return Shortage(StopReason.kv_watermark, needed + kept)
        return None

    def shortage_for_load(
        self,
        request: Request,
        hits: PrefixHits,
        end: int,
        *,
        spare_watermark: bool,
        num_blocks_reserved: int,
    ) -> Shortage | None:
        """Returns what a load up to `end` lacks beside what prefills and loads still need."""
        shortage = self.shortage_for_chunk(request, hits, end, end, spare_watermark=spare_watermark)
        if shortage is not None:
            return shortage
        kept = self._watermark_blocks if spare_watermark else 0
        needed = self._chunk_blocks(hits, end, end) + kept + num_blocks_reserved
        if needed > self._pool.num_free:
            return Shortage(StopReason.kv_reserved_for_loads, needed)
        return None

    def shortage_of_holder(
        self, request: Request, num_tokens: int, *, spare_watermark: bool
    ) -> Shortage | None:
        """Returns what a request that holds blocks lacks for `num_tokens` more."""
        needed = self.num_blocks_missing(request, num_tokens)
        return self._beside_watermark(needed, spare_watermark)

    def whole_shortage_of_holder(
        self, request: Request, *, spare_watermark: bool
    ) -> Shortage | None:
        """Returns what a request that holds blocks lacks for all its tokens, if that is asked."""
        if not self._reserves_whole_prompt:
            return None
        whole = sum(
            max(0, self._most_blocks(group, request) - group.table_length(request.number))
            for group in self._groups
        )
        return self._beside_watermark(whole, spare_watermark)

    def _beside_watermark(self, needed: int, spare_watermark: bool) -> Shortage | None:
        kept = self._watermark_blocks if spare_watermark else 0
        if needed > self._pool.num_free - kept:
            return Shortage(StopReason.loaded_needs_blocks, needed)
        return None

    # ------------------------------------------------------------------------------ counts

    def reach(self, end: int) -> int:
        """Returns the tokens that need slots when a grant ends at `end`."""
        return min(end + self._lookahead, self._max_model_len)

    def num_blocks_missing(self, request: Request, num_tokens: int) -> int:
        """Returns how many blocks a request that holds some lacks for `num_tokens` more."""
        end = self.reach(request.num_computed_tokens + num_tokens)
        missing = 0
        for group in self._groups:
            missing += group.num_missing(request.number, end)
        return missing

    def num_blocks_lacking(self, request: Request, num_extra_tokens: int) -> int:
        """Returns how many more blocks all known tokens of a request, and some more, will need."""
        lacking = 0
        for group in self._groups:
            table = group.tables.get(request.number)
            held = 0 if table is None else len(table.blocks)
            lacking += max(0, self._most_blocks(group, request, num_extra_tokens) - held)
        return lacking

    def num_blocks_for_all(self, request: Request) -> int:
        """Returns the blocks that all known tokens of a request fill, hits not looked up."""
        return sum(self._most_blocks(group, request) for group in self._groups)

    def _most_blocks(self, group: KVGroup, request: Request, num_extra_tokens: int = 0) -> int:
        return group.most_blocks(
            request.num_tokens + num_extra_tokens,
            in_flight=self._most_in_flight,
            max_model_len=self._max_model_len,
        )

    def _chunk_blocks(self, hits: PrefixHits, start: int, end: int) -> int:
        """Returns the blocks that an admission up to `end` takes out of the free list."""
        chunk = self._hits_in_free_list(hits)
        for group, blocks in zip(self._groups, hits.blocks, strict=True):
            chunk += max(0, group.blocks_for(end) - max(len(blocks), group.num_expired(start)))
        return chunk

    def _hits_in_free_list(self, hits: PrefixHits) -> int:
        """A hit that lies in the free list leaves it, so it counts as needed."""
        return sum(self._pool.is_free(block) for blocks in hits.blocks for block in blocks if block)
