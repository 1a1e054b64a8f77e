"""Block tables of requests over all KV groups: prefix hits, all-or-nothing allocation, release.

It is not this module's business who is admitted or evicted; it only says whether blocks suffice,
and which number decided when they do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain as chained

from engine.config import EngineConfig
from engine.kv_cache.block_pool import BlockKey, BlockPool
from engine.kv_cache.group import KVGroup
from engine.kv_cache.hashing import extend_block_keys
from engine.kv_cache.prefix_hits import PrefixHits, PrefixLookup
from engine.request import Request
from telemetry.vocabulary import StopReason

BlockIds = tuple[list[int], ...]
"""Blocks of a request, one list a KV group."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an admission did not get its blocks: the check that failed, and its number."""

    reason: StopReason
    num_blocks_needed: int


class KVCacheManager:
    """The blocks of all requests over one pool, which all groups draw from."""

    def __init__(self, config: EngineConfig) -> None:
        cache, scheduler, speculation = config.cache, config.scheduler, config.speculation
        self.block_size = cache.block_size
        self.pool = BlockPool(cache.num_gpu_blocks)
        self._config = config
        self._hash_block_size = cache.hash_block_size
        self._max_model_len = scheduler.max_model_len
        self._watermark_blocks = config.watermark_blocks
        self._lookahead = speculation.num_lookahead_tokens
        self._drops_last_hit = speculation.drop_last_hit_block
        self._groups = [
            KVGroup(
                index,
                spec,
                self.pool,
                hash_block_size=cache.hash_block_size,
                cycle=cache.block_size // spec.block_size,
                drops_last_hit=speculation.drop_last_hit_block,
            )
            for index, spec in enumerate(cache.kv_groups)
        ]
        steps_in_flight = 2 if scheduler.async_scheduling else 1
        self._most_in_flight = scheduler.max_num_batched_tokens * steps_in_flight
        self._has_windows = not all(group.is_full for group in self._groups)
        self._lookup = PrefixLookup(
            self._groups,
            alignment=cache.block_size,
            drops_last_hit=speculation.drop_last_hit_block,
        )
        self._keys: dict[int, list[BlockKey]] = {}

    # ---------------------------------------------------------------------------------- prefix hits

    def looks_up(self, request: Request) -> bool:
        """Whether the request's prefix is looked up in the cache at all."""
        return self._config.cache.enable_prefix_caching and request.reads_prefix_cache

    def find_hits(self, request: Request) -> PrefixHits:
        """Returns the cached blocks of the request's longest known prefix.

        At most `num_tokens - 1` tokens may hit: the last one has to run to give an output.
        """
        if not self.looks_up(request):
            return PrefixHits(0, tuple([] for _ in self._groups))
        return self._lookup.find(self._block_keys(request), request.num_tokens - 1)

    def reset_prefix_cache(self) -> bool:
        """Empties the prefix cache; False, and nothing done, while a block is in use."""
        return self.pool.reset()

    # ----------------------------------------------------------------------------------- allocation

    def admit(
        self,
        request: Request,
        hits: PrefixHits,
        num_tokens: int,
        *,
        num_external_tokens: int = 0,
        spare_watermark: bool,
    ) -> Shortage | None:
        """Gives a waiting request its hits and blocks for its first chunk, or says what is short.

        Args:
            num_tokens: tokens of the first chunk, behind the hits and what a connector brings.
            spare_watermark: leave the watermark free, as when something runs already.
        """
        start = hits.num_tokens + num_external_tokens
        end = start + num_tokens
        kept = self._watermark_blocks if spare_watermark else 0
        shortage = self._shortage(request, hits, start, self._reach(end), kept)
        if shortage is not None:
            return shortage
        self._take(request, hits, start, self._reach(end))
        self._enter_cache(request, end)
        return None

    def take_for_load(
        self,
        request: Request,
        hits: PrefixHits,
        num_external_tokens: int,
        *,
        spare_watermark: bool,
        num_blocks_reserved: int,
    ) -> Shortage | None:
        """Gives a waiting request its hits and the blocks that a load fills, or says what lacks."""
        end = hits.num_tokens + num_external_tokens
        kept = self._watermark_blocks if spare_watermark else 0
        shortage = self._shortage(request, hits, end, end, kept)
        if shortage is not None:
            return shortage
        needed = self._chunk_blocks(hits, end, end)
        if needed + kept + num_blocks_reserved > self.pool.num_free:
            return Shortage(StopReason.kv_reserved_for_loads, needed + kept + num_blocks_reserved)
        self._take(request, hits, end, end)
        return None

    def _take(self, request: Request, hits: PrefixHits, start: int, end: int) -> None:
        for group, blocks in zip(self._groups, hits.blocks, strict=True):
            group.hold(request.number, blocks)
            group.pad(request.number, start)
        for group in self._groups:
            group.extend(request.number, end)

    def admit_holder(
        self, request: Request, num_tokens: int, *, spare_watermark: bool
    ) -> Shortage | None:
        """Gives a waiting request that holds blocks those for its next chunk, or says what lacks.

        The whole prompt is counted too, less what the request holds.
        """
        free = self.pool.num_free - (self._watermark_blocks if spare_watermark else 0)
        if self._config.scheduler.scheduler_reserve_full_isl:
            whole = sum(
                max(0, self._most_blocks(group, request) - group.table_length(request.number))
                for group in self._groups
            )
            if whole > free:
                return Shortage(StopReason.loaded_needs_blocks, whole)
        self._expire(request)
        needed = self.num_blocks_missing(request, num_tokens)
        free = self.pool.num_free - (self._watermark_blocks if spare_watermark else 0)
        if needed > free:
            return Shortage(StopReason.loaded_needs_blocks, needed)
        self.extend(request, num_tokens)
        return None

    def extend(self, request: Request, num_tokens: int) -> BlockIds | None:
        """Gives a running request the blocks for `num_tokens` more; None, and nothing, if short.

        An empty tuple says that its blocks suffice.
        """
        if self._has_windows:
            self._expire(request)
        end = request.num_computed_tokens + num_tokens
        missing = self.num_blocks_missing(request, num_tokens)
        if missing > self.pool.num_free:
            return None
        fresh: BlockIds = ()
        if missing:
            fresh = tuple(group.extend(request.number, self._reach(end)) for group in self._groups)
        self._enter_cache(request, end)
        return fresh

    def first_invalid_token(self, request: Request, invalid: set[int]) -> int | None:
        """Returns where the request's first invalid block begins; None if it has none."""
        positions = [
            index * group.block_size
            for group in self._groups
            for index, block in enumerate(group.tables[request.number].blocks)
            if block in invalid
        ]
        return min(positions, default=None)

    def blocks_from(self, request: Request, position: int) -> set[int]:
        """Returns the request's blocks that hold tokens from a position on."""
        return {
            block
            for group in self._groups
            for block in group.tables[request.number].blocks[position // group.block_size :]
        }

    def uncache_from(self, request: Request, position: int) -> None:
        """Takes the request's blocks from a position on out of the cache, until they are filled."""
        for group in self._groups:
            group.uncache_from(request.number, position)

    def num_blocks_lacking(self, request: Request, num_extra_tokens: int) -> int:
        """Returns how many more blocks all known tokens of a request, and some more, will need."""
        lacking = 0
        for group in self._groups:
            table = group.tables.get(request.number)
            held = 0 if table is None else len(table.blocks)
            lacking += max(0, self._most_blocks(group, request, num_extra_tokens) - held)
        return lacking

    def num_blocks_of(self, num_tokens: int) -> int:
        """Returns the blocks that so many tokens fill in all groups."""
        return sum(group.blocks_for(num_tokens) for group in self._groups)

    def expire(self, request: Request) -> None:
        """Gives back what the windows of a request that ends have passed."""
        if self._has_windows and all(request.number in group.tables for group in self._groups):
            self._expire(request)

    def enter_computed(self, request: Request) -> None:
        """Enters in the cache what has been computed of tokens that were not known before."""
        self._enter_cache(request, request.num_computed_tokens - request.num_output_placeholders)

    def num_blocks_missing(self, request: Request, num_tokens: int) -> int:
        """Returns how many blocks `extend` would have to find."""
        end = self._reach(request.num_computed_tokens + num_tokens)
        missing = 0
        for group in self._groups:
            missing += group.num_missing(request.number, end)
        return missing

    def num_blocks_for_all(self, request: Request) -> int:
        """Returns the blocks that all known tokens of a request fill, hits not looked up."""
        return sum(self._most_blocks(group, request) for group in self._groups)

    # -------------------------------------------------------------------------------------- release

    def release(self, request: Request, *, uncache_from: int | None = None) -> int:
        """Takes all blocks of a request back; returns how many became free.

        Args:
            uncache_from: tokens from here on were never computed (the step that would have done
                it was withdrawn): blocks that hold any of them leave the cache.
        """
        before = self.pool.num_free
        for group in self._groups:
            if request.number in group.tables:
                group.release(request.number, uncache_from=uncache_from)
        return self.pool.num_free - before

    def forget_keys_from(self, request: Request, position: int) -> None:
        """Drops the keys of blocks whose tokens change from a position on."""
        keys = self._keys.get(request.number)
        if keys is not None:
            del keys[position // self._hash_block_size :]

    def forget(self, request: Request) -> None:
        """Drops what is remembered of a request that has ended."""
        self._keys.pop(request.number, None)

    # ------------------------------------------------------------------------------------ questions

    def block_ids(self, request: Request) -> BlockIds:
        """Returns a copy of the request's block tables."""
        return tuple(list(group.tables[request.number].blocks) for group in self._groups)

    def num_blocks_held(self, request: Request) -> int:
        """Returns how many blocks the request holds, shared ones included."""
        return sum(group.num_held(request.number) for group in self._groups)

    def num_blocks_held_by(self, requests: list[Request]) -> list[int]:
        """Returns how many blocks each of these running requests holds."""
        if len(self._groups) == 1 and self._groups[0].is_full:
            tables = self._groups[0].tables
            return [len(tables[request.number].blocks) for request in requests]
        return [self.num_blocks_held(request) for request in requests]

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Raises AssertionError unless pool, block tables, cache and progress agree."""
        tables = chained.from_iterable(group.tables.values() for group in self._groups)
        self.pool.check_integrity(table.blocks for table in tables)
        for request in requests:
            for group in self._groups:
                table = group.tables.get(request.number)
                room = 0 if table is None else len(table.blocks) * group.block_size
                assert room >= request.num_computed_tokens, "computed without KV"

    # ------------------------------------------------------------------------------------ in detail

    def _reach(self, end: int) -> int:
        """Returns the tokens that need slots when a grant ends at `end`."""
        return min(end + self._lookahead, self._max_model_len)

    def _most_blocks(self, group: KVGroup, request: Request, num_extra_tokens: int = 0) -> int:
        return group.most_blocks(
            request.num_tokens + num_extra_tokens,
            in_flight=self._most_in_flight,
            max_model_len=self._max_model_len,
        )

    def _expire(self, request: Request) -> None:
        """Gives back what windows have passed; tokens that are on their way do not move them."""
        for group in self._groups:
            if not group.is_full:
                arrived = request.num_computed_tokens - request.num_in_flight_tokens
                group.expire(request.number, arrived)

    def _chunk_blocks(self, hits: PrefixHits, start: int, end: int) -> int:
        """Returns the blocks that an admission up to `end` takes out of the free list."""
        chunk = self._hits_in_free_list(hits)
        for group, blocks in zip(self._groups, hits.blocks, strict=True):
            chunk += max(0, group.blocks_for(end) - max(len(blocks), group.num_expired(start)))
        return chunk

    def _hits_in_free_list(self, hits: PrefixHits) -> int:
        """A hit that lies in the free list leaves it, so it counts as needed."""
        return sum(self.pool.is_free(block) for blocks in hits.blocks for block in blocks if block)

    def _shortage(
        self, request: Request, hits: PrefixHits, start: int, end: int, kept: int
    ) -> Shortage | None:
        """Compares what an admission needs with what is free, less what is to be kept."""
        checks = [(StopReason.kv_blocks_chunk, self._chunk_blocks(hits, start, end))]
        if self._config.scheduler.scheduler_reserve_full_isl:
            whole = self._hits_in_free_list(hits)
            for group, blocks in zip(self._groups, hits.blocks, strict=True):
                whole += max(0, self._most_blocks(group, request) - len(blocks))
            checks.insert(0, (StopReason.kv_blocks_whole_prompt, whole))
        for reason, needed in checks:
            if needed > self.pool.num_free:
                return Shortage(reason, needed)
            if needed + kept > self.pool.num_free:
                return Shortage(StopReason.kv_watermark, needed + kept)
        return None

    def _enter_cache(self, request: Request, end: int) -> None:
        """Enters the full blocks up to `end` in the cache; only known tokens count."""
        if not self._config.cache.enable_prefix_caching:
            return
        end = min(end, request.num_tokens)
        if len(self._groups) == 1:
            group = self._groups[0]
            if end // group.block_size > group.tables[request.number].num_entered:
                group.enter(request.number, self._block_keys(request), end, 0)
            return
        whole = end // self.block_size * self.block_size
        if whole == 0:
            return
        partial_at = request.num_prompt_tokens - (not self._drops_last_hit)
        partial_at = partial_at // self._hash_block_size * self._hash_block_size
        for group in self._groups:
            limit = min(end, whole + group.block_size) if self._drops_last_hit else whole
            group.enter(request.number, self._block_keys(request), limit, partial_at)

    def _block_keys(self, request: Request) -> list[BlockKey]:
        keys = self._keys.setdefault(request.number, [])
        extend_block_keys(
            keys,
            request.token_ids,
            self._hash_block_size,
            adapter=request.adapter,
            salt=request.cache_salt,
            items=request.encoder_items,
        )
        return keys
