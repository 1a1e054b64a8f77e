"""What makes two KV blocks equal: their tokens, all tokens before them, and what else shaped them.

A block's key is a hash chained over the blocks before it. Besides the tokens it covers the adapter
(in every block), the cache salt (in the first block, and so through the chain in all), and the
encoder items that reach into the block, with their place in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from engine.encoder_cache import EncoderItem
from engine.kv_cache.block_pool import BlockKey

KEY_BYTES = 16


def extend_block_keys(
    keys: list[BlockKey],
    token_ids: array[int],
    block_size: int,
    *,
    adapter: str | None = None,
    salt: str | None = None,
    items: Sequence[EncoderItem] = (),
) -> None:
    """Appends to `keys` those of the full blocks of `token_ids` that it does not have yet."""
    for index in range(len(keys), len(token_ids) // block_size):
        start, end = index * block_size, (index + 1) * block_size
        block = blake2b(keys[-1] if keys else b"", digest_size=KEY_BYTES)
        if adapter is not None:
            block.update(b"adapter" + adapter.encode() + b"\0")
        if salt is not None and index == 0:
            block.update(b"salt" + salt.encode() + b"\0")
        for item in items:
            if item.position < end and item.end > start:
                block.update(f"item{item.key}\0{item.position - start}\0".encode())
        block.update(token_ids[start:end].tobytes())
        keys.append(block.digest())
