"""What says that two KV blocks hold the same, whatever stands before them and under whatever keys.

The prefix cache finds a block by a hash that is chained over all before it, with adapter and salt.
Here a block's own tokens alone are hashed, with the encoder items that reach into it; so the
collector sees text that came before at another place, or under other keys.

The keys are drawn at the start of an engine and kept nowhere. Hashes of two starts cannot be
compared, and nobody without the keys can check a guess of a prompt. It is a fast hash, not one that
stands against somebody who may choose prompts and read the ring: that takes the engine's own user,
who can read its memory.

Source: D. Lemire and O. Kaser, "Strongly universal string hashing is fast" (2014), section 2
(multilinear); the finish is that of G. Steele et al., "Fast splittable pseudorandom number
generators" (2014), between two secret words.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

HASH_BYTES = 8
"""Bytes of a block's hash."""

_Words = npt.NDArray[np.uint64]
_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)


@dataclass(frozen=True, slots=True)
class Item:
    """An encoder input at the prompt positions from `start` up to `end`; equal if keys are."""

    key: str
    start: int
    end: int


class ContentHashes:
    """Hashes of blocks' contents, under keys that live as long as the engine."""

    def __init__(self, block_size: int) -> None:
        """Draws keys for blocks of `block_size` tokens."""
        drawn = np.frombuffer(os.urandom(8 * (block_size + 2)), np.uint64)
        self._block_size = block_size
        self._factors: _Words = drawn[2:]
        self._begin, self._end = drawn[0], drawn[1]
        self._item_key = os.urandom(16)

    def of(self, token_ids: array[int] | Sequence[int], items: Iterable[Item] = ()) -> bytes:
        """Returns 8 bytes, little-endian, for each full block of a prompt.

        Args:
            items: encoder inputs; the placeholders of two images are the same tokens.
        """
        num_blocks = len(token_ids) // self._block_size
        if not isinstance(token_ids, array):
            token_ids = array("q", token_ids)
        tokens = np.frombuffer(token_ids, f"i{token_ids.itemsize}")[: num_blocks * self._block_size]
        found = tokens.reshape(num_blocks, self._block_size).astype(np.uint64) @ self._factors
        for item in items:
            self._add_item(found, item)
        self._finish(found)
        return found.astype("<u8").tobytes()

    def _add_item(self, found: _Words, item: Item) -> None:
        """Adds an item to the blocks that it reaches into, with its place in each."""
        first, end = item.start // self._block_size, -(-item.end // self._block_size)
        blocks = np.arange(first, min(end, len(found)))
        if len(blocks):
            word = blake2b(item.key.encode(), key=self._item_key, digest_size=8).digest()
            places = (item.start - blocks * self._block_size).astype(np.uint64)
            odd = np.uint64(2) * places + np.uint64(1)
            found[blocks] += np.frombuffer(word, np.uint64) * odd

    def _finish(self, found: _Words) -> None:
        """Mixes the bits, so that no hash is a sum of others."""
        found += self._begin
        for shift, factor in _ROUNDS:
            found ^= found >> shift
            found *= factor
        found ^= found >> _LAST_SHIFT
        found ^= self._end
