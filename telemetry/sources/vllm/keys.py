"""Keys that say which things are equal in one engine start, and nothing of what they are.

vLLM's own block hashes are not secret: with its default settings they are the same in every
process, so whoever guesses a prompt can check the guess. Here each is hashed once more, under a key
that is drawn at the start and kept nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b

KEY_BYTES = 16
HASH_BYTES = 8
"""Bytes of a block's hash, and of the count of its tokens that stands before all hashes."""


class SaltedKeys:
    """Hashes under a key that lives as long as the engine."""

    def __init__(self) -> None:
        self._key = os.urandom(KEY_BYTES)

    def of(self, text: str | None) -> str | None:
        """Returns the key of a text, 16 hex digits; None for None."""
        if text is None:
            return None
        return blake2b(text.encode(), key=self._key, digest_size=HASH_BYTES).hexdigest()

    def of_blocks(self, block_hashes: Sequence[bytes]) -> bytes:
        """Returns the keyed hashes of blocks, one behind the other."""
        key = self._key
        return b"".join(
            [blake2b(block, key=key, digest_size=HASH_BYTES).digest() for block in block_hashes]
        )
