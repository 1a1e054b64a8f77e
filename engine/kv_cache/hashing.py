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
from engine.kv_cache.block_index import BlockKey

KEY_BYTES = 16
HASH_BYTES = 8
"""Bytes of a key that the record is told, to see who shares a prefix."""


def extend_block_keys(
    keys: list[BlockKey],
    token_ids: array[int],
    block_size: int,
    *,
    adapter: str | None = None,
    salt: str | None = None,
    items: Sequence[EncoderItem] = (),
    seed: bytes = b"",
) -> None:
    """Appends to `keys` those of the full blocks of `token_ids` that it does not have yet.

    Args:
        seed: what the chain begins with; keys of different seeds cannot be compared, nor guessed.
    """
    is_plain = adapter is None and salt is None and not items
    for index in range(len(keys), len(token_ids) // block_size):
        start, end = index * block_size, (index + 1) * block_size
        content = token_ids[start:end].tobytes()
        if not is_plain:
            content = _circumstances(start, end, adapter, salt, items) + content
        content = (keys[-1] if keys else seed) + content
        keys.append(blake2b(content, digest_size=KEY_BYTES).digest())


def _circumstances(
    start: int,
    end: int,
    adapter: str | None,
    salt: str | None,
    items: Sequence[EncoderItem],
) -> bytes:
    """Returns what shapes a block besides its tokens and all before them."""
    parts = []
    if adapter is not None:
        parts.append(b"adapter" + adapter.encode() + b"\0")
    if salt is not None and start == 0:
        parts.append(b"salt" + salt.encode() + b"\0")
    for item in items:
        if item.position < end and item.end > start:
            parts.append(f"item{item.key}\0{item.position - start}\0".encode())
    return b"".join(parts)
