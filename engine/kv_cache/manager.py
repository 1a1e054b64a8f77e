"""Block tables of requests: prefix hits, all-or-nothing allocation, release.

One KV group (full attention) so far: a block table is a tuple with one list. It is not this
module's business who is admitted or evicted; it only says whether blocks suffice, and which number
decided when they do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.kv_cache.block_pool import BlockKey, BlockPool
from engine.kv_cache.hashing import extend_block_keys
from engine.request import Request
from telemetry.vocabulary import StopReason


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an admission did not get its blocks: the check that failed, and its number."""

    reason: StopReason
    num_blocks_needed: int


@dataclass(slots=True)
class _Holding:
    """What a request holds: its block table and how many of its blocks are in the cache."""

    blocks: list[int] = field(default_factory=list)
    num_cached: int = 0


class KVCacheManager:
    """The blocks of all requests over one pool.

    Args:
        num_blocks: blocks with the null block.
        block_size: tokens of a block.
        max_model_len: no request needs blocks beyond it.
        watermark_blocks: blocks that an admission leaves free while something runs.
        num_lookahead_tokens: slots beyond the scheduled tokens that a drafter writes.
        drop_last_hit_block: the last block of a prefix hit is computed again.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        enable_caching: bool,
        reserve_full_prompt: bool,
        watermark_blocks: int,
        num_lookahead_tokens: int = 0,
        drop_last_hit_block: bool = False,
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self._max_model_len = max_model_len
        self._enable_caching = enable_caching
        self._reserve_full_prompt = reserve_full_prompt
        self._watermark_blocks = watermark_blocks
        self._num_lookahead_tokens = num_lookahead_tokens
        self._drop_last_hit_block = drop_last_hit_block
        self._holdings: dict[int, _Holding] = {}
        self._keys: dict[int, list[BlockKey]] = {}

    def looks_up(self, request: Request) -> bool:
        """Whether the request's prefix is looked up in the cache at all."""
        return self._enable_caching and request.reads_prefix_cache

    def find_hits(self, request: Request) -> list[int]:
        """Returns the cached blocks of the request's longest known prefix.

        At most `num_tokens - 1` tokens may hit: the last one has to run to give an output.
        """
        if not self.looks_up(request):
            return []
        limit = (request.num_tokens - 1) // self.block_size
        hits: list[int] = []
        for key in self._block_keys(request)[:limit]:
            block = self.pool.find(key)
            if block is None:
                break
            hits.append(block)
        return hits[:-1] if self._drop_last_hit_block else hits

    def admit(
        self, request: Request, hits: list[int], num_tokens: int, *, spare_watermark: bool
    ) -> Shortage | None:
        """Gives a waiting request its hits and blocks for its first chunk, or says what is short.

        Args:
            num_tokens: tokens of the first chunk, behind the hits.
            spare_watermark: leave the watermark free, as when something runs already.
        """
        shortage = self._shortage(request, hits, num_tokens, spare_watermark)
        if shortage is not None:
            return shortage
        self.pool.take_cached(hits)
        end = len(hits) * self.block_size + num_tokens
        fresh = self.pool.allocate(self._blocks_for(end + self._num_lookahead_tokens) - len(hits))
        self._holdings[request.number] = _Holding([*hits, *fresh], len(hits))
        self._enter_cache(request, end)
        return None

    def admit_holder(
        self, request: Request, num_tokens: int, *, spare_watermark: bool
    ) -> Shortage | None:
        """Gives a waiting request that holds blocks those for its next chunk, or says what lacks.

        The whole prompt is counted too, less what the request holds.
        """
        free = self.pool.num_free - (self._watermark_blocks if spare_watermark else 0)
        needed = self.num_blocks_missing(request, num_tokens)
        if self._reserve_full_prompt:
            missing = self._blocks_for(request.num_tokens) - self.num_blocks_held(request)
            needed = max(needed, missing)
        if needed > free:
            return Shortage(StopReason.loaded_needs_blocks, needed)
        self.extend(request, num_tokens)
        return None

    def extend(self, request: Request, num_tokens: int) -> list[int] | None:
        """Gives a running request the blocks for `num_tokens` more; None, and nothing, if short."""
        holding = self._holdings[request.number]
        end = request.num_computed_tokens + num_tokens
        missing = self._blocks_for(end + self._num_lookahead_tokens) - len(holding.blocks)
        if missing > self.pool.num_free:
            return None
        fresh = self.pool.allocate(missing) if missing > 0 else []
        holding.blocks += fresh
        self._enter_cache(request, end)
        return fresh

    def num_blocks_missing(self, request: Request, num_tokens: int) -> int:
        """Returns how many blocks `extend` would have to find."""
        end = request.num_computed_tokens + num_tokens + self._num_lookahead_tokens
        return max(0, self._blocks_for(end) - self.num_blocks_held(request))

    def num_blocks_for_all(self, request: Request) -> int:
        """Returns the blocks that all known tokens of a request fill, hits not looked up."""
        return self._blocks_for(request.num_tokens)

    def release(self, request: Request, *, uncache_from: int | None = None) -> int:
        """Takes all blocks of a request back; returns how many became free.

        Args:
            uncache_from: tokens from here on were never computed (the step that would have done
                it was withdrawn): blocks that hold any of them leave the cache.
        """
        holding = self._holdings.pop(request.number, None)
        if holding is None:
            return 0
        if uncache_from is not None:
            for block in holding.blocks[uncache_from // self.block_size : holding.num_cached]:
                self.pool.uncache(block)
        before = self.pool.num_free
        self.pool.release(holding.blocks)
        return self.pool.num_free - before

    def forget_keys_from(self, request: Request, position: int) -> None:
        """Drops the keys of blocks whose tokens change from a position on."""
        keys = self._keys.get(request.number)
        if keys is not None:
            del keys[position // self.block_size :]

    def forget(self, request: Request) -> None:
        """Drops what is remembered of a request that has ended."""
        self._keys.pop(request.number, None)

    def reset_prefix_cache(self) -> bool:
        """Empties the prefix cache; False, and nothing done, while a block is in use."""
        return self.pool.reset()

    def block_ids(self, request: Request) -> list[int]:
        """Returns a copy of the request's block table."""
        holding = self._holdings.get(request.number)
        return list(holding.blocks) if holding is not None else []

    def num_blocks_held(self, request: Request) -> int:
        """Returns how many blocks the request holds, shared ones included."""
        holding = self._holdings.get(request.number)
        return len(holding.blocks) if holding is not None else 0

    def num_blocks_held_by(self, requests: list[Request]) -> list[int]:
        """Returns how many blocks each of these running requests holds."""
        holdings = self._holdings
        return [len(holdings[request.number].blocks) for request in requests]

    def check_integrity(self) -> None:
        """Raises AssertionError unless pool, block tables and cache agree."""
        self.pool.check_integrity(holding.blocks for holding in self._holdings.values())

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-min(num_tokens, self._max_model_len) // self.block_size)

    def _shortage(
        self, request: Request, hits: list[int], num_tokens: int, spare_watermark: bool
    ) -> Shortage | None:
        """Compares what an admission needs with what is free.

        A hit that lies in the free list leaves it, so it counts as needed.
        """
        free = self.pool.num_free
        kept = self._watermark_blocks if spare_watermark else 0
        still_held = sum(not self.pool.is_free(block) for block in hits)
        chunk_end = len(hits) * self.block_size + num_tokens + self._num_lookahead_tokens
        checks = [(StopReason.kv_blocks_chunk, self._blocks_for(chunk_end) - still_held)]
        if self._reserve_full_prompt:
            whole = self._blocks_for(request.num_tokens) - still_held
            checks.insert(0, (StopReason.kv_blocks_whole_prompt, whole))
        for reason, needed in checks:
            if needed > free:
                return Shortage(reason, needed)
            if needed + kept > free:
                return Shortage(StopReason.kv_watermark, needed + kept)
        return None

    def _enter_cache(self, request: Request, end: int) -> None:
        """Enters the full blocks up to `end` in the cache; only known tokens count."""
        if not self._enable_caching:
            return
        holding = self._holdings[request.number]
        num_full = min(end, request.num_tokens) // self.block_size
        if num_full <= holding.num_cached:
            return
        keys = self._block_keys(request)
        for index in range(holding.num_cached, num_full):
            self.pool.cache(holding.blocks[index], keys[index])
        holding.num_cached = num_full

    def _block_keys(self, request: Request) -> list[BlockKey]:
        keys = self._keys.setdefault(request.number, [])
        extend_block_keys(
            keys,
            request.token_ids,
            self.block_size,
            adapter=request.adapter,
            salt=request.cache_salt,
            items=request.encoder_items,
        )
        return keys
