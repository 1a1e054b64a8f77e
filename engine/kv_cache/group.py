"""One KV group: layers that keep the same tokens, and so share their block tables.

A full-attention group keeps everything. A sliding-window group needs the last `w - 1` tokens only:

    block table   0   0   7   4   9        0 = null block: wholly left of the window, given back
                          |---- w ----|

A group has a block size of its own. Keys are chained over hash blocks, the greatest size that
divides all groups' block sizes; the key of a group's block is that of its last hash block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import KVGroupConfig
from engine.kv_cache.block_index import BlockKey
from engine.kv_cache.block_pool import BlockPool

NULL_BLOCK = 0

PARTIAL = b"partial"
"""Ends the key of a block that was entered before it was full."""


def most_blocks(spec: KVGroupConfig, num_tokens: int, *, in_flight: int, max_model_len: int) -> int:
    """Returns how many blocks a request of `num_tokens` ever holds at once in a group.

    Args:
        in_flight: tokens that steps in flight may add to a window.
    """
    num_blocks = -(-min(num_tokens, max_model_len) // spec.block_size)
    if spec.kind == "full" or spec.sliding_window is None:
        return num_blocks
    span = min(spec.sliding_window - 1 + in_flight, max_model_len)
    return min(num_blocks, -(-span // spec.block_size) + 1)


@dataclass(slots=True)
class BlockTable:
    """What a request holds in a group; the first `num_entered` blocks have been in the cache."""

    blocks: list[int] = field(default_factory=list)
    num_entered: int = 0
    num_expired: int = 0


class KVGroup:
    """The block tables of one group.

    Args:
        index: place among the groups; keeps their keys apart.
        cycle: blocks of this group to a scheduler block, the least that all groups divide.
        drops_last_hit: the last block of a hit is computed again.
    """

    def __init__(
        self,
        index: int,
        spec: KVGroupConfig,
        pool: BlockPool,
        *,
        hash_block_size: int,
        cycle: int,
        drops_last_hit: bool,
    ) -> None:
        self.block_size = spec.block_size
        self.spec = spec
        self.tables: dict[int, BlockTable] = {}
        self._pool = pool
        self._suffix = bytes([index]) if index else b""
        self._hashes_a_block = spec.block_size // hash_block_size
        self._window = spec.sliding_window if spec.kind == "sliding_window" else None
        self._cycle = cycle
        self._drop = int(drops_last_hit)

    @property
    def is_full(self) -> bool:
        """Whether it keeps all tokens."""
        return self._window is None

    @property
    def run_length(self) -> int:
        """Blocks in a row that a window needs to go on from a hit."""
        assert self._window is not None
        return -(-(self._window - 1) // self.block_size)

    def blocks_for(self, num_tokens: int) -> int:
        """Returns the blocks that so many tokens fill."""
        return -(-num_tokens // self.block_size)

    def most_blocks(self, num_tokens: int, *, in_flight: int, max_model_len: int) -> int:
        """Returns how many blocks a request of `num_tokens` ever holds at once.

        Args:
            in_flight: tokens that steps in flight may add to a window.
        """
        return most_blocks(self.spec, num_tokens, in_flight=in_flight, max_model_len=max_model_len)

    def num_expired(self, num_computed_tokens: int) -> int:
        """Returns how many blocks lie wholly left of the window."""
        if self._window is None:
            return 0
        return max(0, num_computed_tokens - self._window + 1) // self.block_size

    # ---------------------------------------------------------------------------------- the cache

    def num_keys(self, chain: list[BlockKey]) -> int:
        """Returns how many whole blocks a chain has keys for."""
        return len(chain) // self._hashes_a_block

    def find(self, chain: list[BlockKey], index: int) -> int | None:
        """Returns the cached block of a place in a prompt."""
        return self._pool.find(self._key(chain, index))

    def num_cached(self, chain: list[BlockKey], limit: int) -> int:
        """Returns how many of the first `limit` blocks of a prompt are cached without a gap."""
        find, step, suffix = self._pool.find, self._hashes_a_block, self._suffix
        for index in range(limit):
            if find(chain[(index + 1) * step - 1] + suffix) is None:
                return index
        return limit

    def may_have_key(self, chain: list[BlockKey], index: int, key: BlockKey) -> bool:
        """Whether a block at a place in a prompt can be cached under a key: whole, or in part."""
        end = (index + 1) * self._hashes_a_block
        if end <= len(chain) and key == chain[end - 1] + self._suffix:
            return True
        hashes = chain[index * self._hashes_a_block : end]
        return any(key == each + self._suffix + PARTIAL for each in hashes)

    def _key(self, chain: list[BlockKey], index: int) -> BlockKey:
        return chain[(index + 1) * self._hashes_a_block - 1] + self._suffix

    def enter(self, number: int, chain: list[BlockKey], num_tokens: int, partial_at: int) -> None:
        """Enters the whole blocks of the first `num_tokens` in the cache.

        Args:
            partial_at: position of the block that is entered though it may not be whole; 0: none.
        """
        table = self.tables[number]
        num_whole = num_tokens // self.block_size
        for index in range(table.num_entered, num_whole):
            block = table.blocks[index]
            if block != NULL_BLOCK and self._is_kept(index):
                self._pool.uncache(block)
                self._pool.cache(block, self._key(chain, index))
        table.num_entered = max(table.num_entered, num_whole)
        if partial_at and partial_at % self.block_size and partial_at <= num_tokens:
            block = table.blocks[partial_at // self.block_size]
            if self.is_full and not self._pool.is_cached(block):
                place = partial_at // (self.block_size // self._hashes_a_block) - 1
                self._pool.cache(block, chain[place] + self._suffix + PARTIAL)

    def enter_next_block(self, number: int, chain: list[BlockKey]) -> None:
        """Enters the first block that has not been, if it is full; of an only group."""
        table = self.tables[number]
        index = table.num_entered
        if index < len(chain):
            self._pool.cache(table.blocks[index], chain[index])
            table.num_entered = index + 1

    def _is_kept(self, index: int) -> bool:
        """Whether a window's hit could ever end where it needs this block."""
        if self._window is None or self.run_length + self._drop >= self._cycle:
            return True
        index -= self._drop
        return index >= 0 and index % self._cycle >= self._cycle - self.run_length - self._drop

    # ---------------------------------------------------------------------------------- the tables

    def hold(self, number: int, hits: list[int]) -> None:
        """Starts a request's table with its hits."""
        self._pool.take_cached(block for block in hits if block != NULL_BLOCK)
        self.tables[number] = BlockTable(list(hits), len(hits))

    def pad(self, number: int, num_computed_tokens: int) -> None:
        """Puts null blocks where tokens that come from elsewhere lie left of the window."""
        table = self.tables[number]
        lacking = self.num_expired(num_computed_tokens) - len(table.blocks)
        if lacking > 0:
            table.blocks += [NULL_BLOCK] * lacking
            table.num_expired = len(table.blocks)

    def num_missing(self, number: int, num_tokens: int) -> int:
        """Returns how many blocks a request lacks for its first `num_tokens`."""
        return max(0, self.blocks_for(num_tokens) - len(self.tables[number].blocks))

    def extend(self, number: int, num_tokens: int) -> list[int]:
        """Adds the missing blocks for the first `num_tokens`; the caller has seen to room."""
        fresh = self._pool.allocate(self.num_missing(number, num_tokens))
        self.tables[number].blocks += fresh
        return fresh

    def expire(self, number: int, num_computed_tokens: int) -> None:
        """Gives back the blocks that lie wholly left of the window."""
        table = self.tables[number]
        end = min(self.num_expired(num_computed_tokens), len(table.blocks))
        if end <= table.num_expired:
            return
        gone = table.blocks[table.num_expired : end]
        table.blocks[table.num_expired : end] = [NULL_BLOCK] * len(gone)
        table.num_expired = end
        self._release(gone)

    def release(self, number: int, *, uncache_from: int | None, partial_at: int = 0) -> None:
        """Gives back all blocks of a request; see `KVCacheManager.release`.

        Args:
            partial_at: position of the block that was entered though it may not be whole.
        """
        table = self.tables.pop(number)
        if uncache_from is not None:
            first = uncache_from // self.block_size
            end = table.num_entered if partial_at <= uncache_from else len(table.blocks)
            for block in table.blocks[first:end]:
                if block != NULL_BLOCK:
                    self._pool.uncache(block)
        self._release(table.blocks)

    def uncache_from(self, number: int, position: int) -> None:
        """Takes a request's blocks from a position on out of the cache; they may enter it again."""
        table, first = self.tables[number], position // self.block_size
        table.num_entered = min(table.num_entered, first)
        for block in table.blocks[first:]:
            if block != NULL_BLOCK:
                self._pool.uncache(block)

    def _release(self, blocks: list[int]) -> None:
        self._pool.release([block for block in blocks if block != NULL_BLOCK])

    def table_length(self, number: int) -> int:
        """Returns how many places a request's table has, null blocks included."""
        return len(self.tables[number].blocks)

    def num_held(self, number: int) -> int:
        """Returns how many blocks a request holds."""
        table = self.tables.get(number)
        return 0 if table is None else len(table.blocks) - table.blocks.count(NULL_BLOCK)
