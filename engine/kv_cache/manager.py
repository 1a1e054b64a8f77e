"""Block tables of requests over all KV groups: all-or-nothing allocation, loads, release.

It is not this module's business who is admitted or evicted; it only gives and takes. Whether blocks
suffice is `room`'s question, what a prefix hits and what enters the cache is `prefix_cache`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from engine.config import EngineConfig
from engine.kv_cache.block_pool import BlockPool
from engine.kv_cache.group import NULL_BLOCK, KVGroup
from engine.kv_cache.integrity import KVReport, examine_kv
from engine.kv_cache.prefix_cache import PrefixCache
from engine.kv_cache.prefix_hits import PrefixHits
from engine.kv_cache.room import Room, Shortage
from engine.request import Request

BlockIds = tuple[list[int], ...]
"""Blocks of a request, one list a KV group."""


class KVCacheManager:
    """The blocks of all requests over one pool, which all groups draw from."""

    def __init__(self, config: EngineConfig) -> None:
        cache = config.cache
        self.block_size = cache.block_size
        self.pool = BlockPool(cache.num_gpu_blocks)
        self._groups = [
            KVGroup(
                index,
                spec,
                self.pool,
                hash_block_size=cache.hash_block_size,
                cycle=cache.block_size // spec.block_size,
                drops_last_hit=config.speculation.drop_last_hit_block,
            )
            for index, spec in enumerate(cache.kv_groups)
        ]
        self._has_windows = not all(group.is_full for group in self._groups)
        self._room = Room(config, self._groups, self.pool)
        self._prefixes = PrefixCache(config, self._groups)
        self.enter_filled = self._prefixes.enter_next_blocks
        """Enters the block that the newest token of each of some requests fills."""
        self._last_ticket = 0

    # -------------------------------------------------------------------------------- prefix cache

    def looks_up(self, request: Request) -> bool:
        """Whether the request's prefix is looked up in the cache at all."""
        return self._prefixes.looks_up(request)

    def learn(self, request: Request) -> None:
        """Takes in a newcomer, so that its first look-up is short."""
        self._prefixes.learn(request)

    def find_hits(self, request: Request) -> PrefixHits:
        """Returns the cached blocks of the request's longest known prefix; see `PrefixCache`."""
        return self._prefixes.find_hits(request)

    def enter_computed(self, request: Request) -> None:
        """Enters in the cache what has been computed of tokens that were not known before."""
        computed = request.num_computed_tokens - request.num_output_placeholders
        self._prefixes.enter(request, computed)

    def prefix_hashes(self, request: Request) -> bytes:
        """Returns short hashes of the request's full blocks, for the record; see `PrefixCache`."""
        return self._prefixes.hashes(request)

    def forget_keys_from(self, request: Request, position: int) -> None:
        """Drops the keys of blocks whose tokens change from a position on."""
        self._prefixes.forget_keys_from(request, position)

    def forget(self, request: Request) -> None:
        """Drops what is remembered of a request that has ended."""
        self._prefixes.forget(request)

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
        hits = self._within_windows(hits, start)
        end = start + num_tokens
        reach = self._room.reach(end)
        shortage = self._room.shortage_for_chunk(
            request, hits, start, reach, spare_watermark=spare_watermark
        )
        if shortage is None:
            self._take(request, hits, start, reach)
            self._prefixes.enter(request, end)
        return shortage

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
        hits = self._within_windows(hits, end)
        shortage = self._room.shortage_for_load(
            request,
            hits,
            end,
            spare_watermark=spare_watermark,
            num_blocks_reserved=num_blocks_reserved,
        )
        if shortage is None:
            self._take(request, hits, end, end)
        return shortage

    def _within_windows(self, hits: PrefixHits, start: int) -> PrefixHits:
        """Returns hits without the blocks that are left of a window once `start` tokens are there.

        What comes from elsewhere behind the hits moves the windows on.
        """
        if not self._has_windows or start == hits.num_tokens:
            return hits
        blocks = tuple(
            [NULL_BLOCK] * min(group.num_expired(start), len(own)) + own[group.num_expired(start) :]
            for group, own in zip(self._groups, hits.blocks, strict=True)
        )
        return replace(hits, blocks=blocks)

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
        shortage = self._room.whole_shortage_of_holder(request, spare_watermark=spare_watermark)
        if shortage is not None:
            return shortage
        self._expire(request)
        shortage = self._room.shortage_of_holder(
            request, num_tokens, spare_watermark=spare_watermark
        )
        if shortage is None:
            self.extend(request, num_tokens)
        return shortage

    def extend(self, request: Request, num_tokens: int) -> BlockIds | None:
        """Gives a running request the blocks for `num_tokens` more; None, and nothing, if short.

        An empty tuple says that its blocks suffice.
        """
        if self._has_windows:
            self._expire(request)
        missing = self._room.num_blocks_missing(request, num_tokens)
        if missing > self.pool.num_free:
            return None
        end = request.num_computed_tokens + num_tokens
        fresh: BlockIds = ()
        if missing:
            reach = self._room.reach(end)
            fresh = tuple(group.extend(request.number, reach) for group in self._groups)
        self._prefixes.enter(request, end)
        return fresh

    # -------------------------------------------------------- the array path: one group, no windows

    def is_in_step(self, request: Request) -> bool:
        """Whether it has the blocks of its computed tokens and no more, and all are entered."""
        group = self._groups[0]
        table, computed = group.tables[request.number], request.num_computed_tokens
        if len(table.blocks) != group.blocks_for(computed):
            return False
        return not self._prefixes.is_enabled or table.num_entered == computed // group.block_size

    def grow(self, requests: list[Request]) -> list[int]:
        """Adds one block to each request's table and returns them; the caller has seen to room."""
        tables = self._groups[0].tables
        fresh = self.pool.allocate(len(requests))
        for request, block in zip(requests, fresh, strict=True):
            tables[request.number].blocks.append(block)
        return fresh

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
                group.release(
                    request.number,
                    uncache_from=uncache_from,
                    partial_at=self._prefixes.partial_at(request),
                )
        return self.pool.num_free - before

    def set_apart(self, request: Request) -> int:
        """Moves a request's blocks out of its hands and returns the ticket that they are under."""
        self._last_ticket -= 1
        for group in self._groups:
            group.tables[self._last_ticket] = group.tables.pop(request.number)
        return self._last_ticket

    def num_blocks_set_apart(self, ticket: int) -> int:
        """Returns how many blocks are held under a ticket."""
        return sum(group.num_held(ticket) for group in self._groups)

    def blocks_set_apart(self, tickets: Iterable[int]) -> set[int]:
        """Returns the blocks that are held under some tickets."""
        tables = (group.tables[ticket] for ticket in tickets for group in self._groups)
        return {block for table in tables for block in table.blocks if block != NULL_BLOCK}

    def release_set_apart(self, ticket: int) -> None:
        """Gives back the blocks that are held under a ticket."""
        for group in self._groups:
            group.release(ticket, uncache_from=None)

    def expire(self, request: Request, *, num_executing_tokens: int = 0) -> None:
        """Gives back what the windows of a request that ends have passed.

        Args:
            num_executing_tokens: its tokens in a step that executes, and that is not in flight
                beside others.
        """
        if self._has_windows and all(request.number in group.tables for group in self._groups):
            self._expire(request, num_executing_tokens)

    def _expire(self, request: Request, num_executing_tokens: int = 0) -> None:
        """Gives back what windows have passed; tokens that are on their way do not move them."""
        on_their_way = request.num_in_flight_tokens + num_executing_tokens
        for group in self._groups:
            if not group.is_full:
                group.expire(request.number, request.num_computed_tokens - on_their_way)

    # ------------------------------------------------------------------------ blocks that failed

    def first_invalid_token(self, request: Request, invalid: set[int]) -> int | None:
        """Returns where the request's first invalid block begins; None if it has none."""
        positions = [
            index * group.block_size
            for group in self._groups
            for index, block in enumerate(group.tables[request.number].blocks)
            if block in invalid
        ]
        return min(positions, default=None)

    def places_of(self, request: Request, blocks: Collection[int]) -> list[int]:
        """Returns where some blocks stand in the request's table of the first group."""
        table = self._groups[0].tables[request.number].blocks
        return [place for place, block in enumerate(table) if block in blocks]

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

    # ------------------------------------------------------------------------------------ questions

    def num_blocks_missing(self, request: Request, num_tokens: int) -> int:
        """Returns how many blocks `extend` would have to find."""
        return self._room.num_blocks_missing(request, num_tokens)

    def num_blocks_lacking(self, request: Request, num_extra_tokens: int) -> int:
        """Returns how many more blocks all known tokens of a request, and some more, will need."""
        return self._room.num_blocks_lacking(request, num_extra_tokens)

    def num_blocks_for_all(self, request: Request) -> int:
        """Returns the blocks that all known tokens of a request fill, hits not looked up."""
        return self._room.num_blocks_for_all(request)

    def num_blocks_of(self, num_tokens: int) -> int:
        """Returns the blocks that so many tokens fill in all groups."""
        return sum(group.blocks_for(num_tokens) for group in self._groups)

    def block_ids(self, request: Request) -> BlockIds:
        """Returns a copy of the request's block tables."""
        return tuple(list(group.tables[request.number].blocks) for group in self._groups)

    def blocks_held_by(self, requests: Iterable[Request]) -> set[int]:
        """Returns the blocks that any of these requests holds."""
        held: set[int] = set()
        for request in requests:
            for group in self._groups:
                table = group.tables.get(request.number)
                held.update(table.blocks if table is not None else ())
        held.discard(NULL_BLOCK)
        return held

    def holds(self, request: Request) -> bool:
        """Whether the request has block tables."""
        return request.number in self._groups[0].tables

    def num_blocks_held(self, request: Request) -> int:
        """Returns how many blocks the request holds, shared ones included."""
        return sum(group.num_held(request.number) for group in self._groups)

    def num_blocks_held_by(self, requests: list[Request]) -> list[int]:
        """Returns how many blocks each of these running requests holds."""
        if len(self._groups) == 1 and self._groups[0].is_full:
            tables = self._groups[0].tables
            return [len(tables[request.number].blocks) for request in requests]
        return [self.num_blocks_held(request) for request in requests]

    # ------------------------------------------------------------------------------------ integrity

    def examine(self, requests: Iterable[Request], *, deep: bool = False) -> KVReport:
        """Returns what the books of pool, block tables and cache say, and where they disagree.

        Args:
            requests: all that hold blocks, those among them that have ended included.
            deep: work their blocks' keys out anew, from their tokens.
        """
        prefixes = self._prefixes if deep else None
        return examine_kv(self.pool.books(), self._groups, requests, prefixes)

    def check_integrity(self, requests: Iterable[Request], *, deep: bool = False) -> None:
        """Raises AssertionError unless pool, block tables, cache and progress agree."""
        self.examine(requests, deep=deep).raise_if_broken()
