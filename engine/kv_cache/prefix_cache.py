"""The prefix cache as requests see it: their keys, what they hit, what they enter.

A request's keys are worked out once and remembered while it lives; the blocks and their index are
the pool's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from engine.config import EngineConfig
from engine.kv_cache.block_index import BlockKey
from engine.kv_cache.group import KVGroup
from engine.kv_cache.hashing import HASH_BYTES, KEY_BYTES, extend_block_keys
from engine.kv_cache.prefix_hits import PrefixHits, PrefixLookup
from engine.request import Request


class PrefixCache:
    """Finds the cached prefixes of requests, and enters what they compute."""

    def __init__(self, config: EngineConfig, groups: Sequence[KVGroup]) -> None:
        self.is_enabled = config.cache.enable_prefix_caching
        self._groups = list(groups)
        self._block_size = config.cache.block_size
        self._hash_block_size = config.cache.hash_block_size
        self._drops_last_hit = config.speculation.drop_last_hit_block
        self._lookup = PrefixLookup(
            self._groups, alignment=self._block_size, drops_last_hit=self._drops_last_hit
        )
        self._keys: dict[int, list[BlockKey]] = {}
        self._seed = os.urandom(KEY_BYTES)

    def looks_up(self, request: Request) -> bool:
        """Whether the request's prefix is looked up at all."""
        return self.is_enabled and request.reads_prefix_cache

    def find_hits(self, request: Request) -> PrefixHits:
        """Returns the cached blocks of the request's longest known prefix.

        At most `num_tokens - 1` tokens may hit: the last one has to run to give an output.
        """
        if not self.looks_up(request):
            return PrefixHits(0, tuple([] for _ in self._groups))
        return self._lookup.find(self._keys_of(request), request.num_tokens - 1)

    def enter(self, request: Request, end: int) -> None:
        """Enters the full blocks up to `end`; only known tokens count."""
        if not self.is_enabled:
            return
        end = min(end, request.num_tokens)
        if len(self._groups) == 1:
            group = self._groups[0]
            if end // group.block_size > group.tables[request.number].num_entered:
                group.enter(request.number, self._keys_of(request), end, 0)
            return
        whole = end // self._block_size * self._block_size
        if whole == 0:
            return
        partial_at = self.partial_at(request)
        for group in self._groups:
            limit = min(end, whole + group.block_size) if self._drops_last_hit else whole
            group.enter(request.number, self._keys_of(request), limit, partial_at)

    def partial_at(self, request: Request) -> int:
        """Returns the position whose block may be entered before it is whole; of several groups."""
        end = request.num_prompt_tokens - (not self._drops_last_hit)
        return end // self._hash_block_size * self._hash_block_size

    def enter_next_blocks(self, requests: Iterable[Request]) -> None:
        """Enters the block that each newest token fills, where one group keeps all tokens."""
        if self.is_enabled:
            enter = self._groups[0].enter_next_block
            for request in requests:
                enter(request.number, self._keys_of(request))

    def learn(self, request: Request) -> None:
        """Works out the keys of a newcomer's prompt before any step has to wait for them."""
        if self.is_enabled:
            self._keys_of(request)

    def hashes(self, request: Request) -> bytes:
        """Returns what says which requests share a prefix, and nothing of what is in it.

        8 bytes, little-endian, say how many tokens a block has; then come 8 bytes a full block, of
        its key, which is another in each engine start.
        """
        head = self._hash_block_size.to_bytes(HASH_BYTES, "little")
        return head + b"".join([key[:HASH_BYTES] for key in self._keys_of(request)])

    def forget_keys_from(self, request: Request, position: int) -> None:
        """Drops the keys of blocks whose tokens change from a position on."""
        keys = self._keys.get(request.number)
        if keys is not None:
            del keys[position // self._hash_block_size :]

    def forget(self, request: Request) -> None:
        """Drops what is remembered of a request that has ended."""
        self._keys.pop(request.number, None)

    def remembered_keys(self, request: Request) -> Sequence[BlockKey]:
        """Returns the keys that are remembered of a request; none where it was never asked for."""
        return self._keys.get(request.number, ())

    def fresh_keys(self, request: Request) -> list[BlockKey]:
        """Returns the keys of all full blocks of a request, worked out anew from its tokens."""
        keys: list[BlockKey] = []
        self._extend(keys, request)
        return keys

    def _keys_of(self, request: Request) -> list[BlockKey]:
        keys = self._keys.get(request.number)
        if keys is None:
            keys = self._keys[request.number] = []
        if len(request.token_ids) // self._hash_block_size > len(keys):
            self._extend(keys, request)
        return keys

    def _extend(self, keys: list[BlockKey], request: Request) -> None:
        extend_block_keys(
            keys,
            request.token_ids,
            self._hash_block_size,
            adapter=request.adapter_key or request.adapter,
            salt=request.cache_salt,
            items=request.encoder_items,
            seed=self._seed,
        )
