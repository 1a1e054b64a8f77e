"""Where the content of KV blocks is kept under their keys, outside the paged KV cache.

A payload is a block's bytes over all layers, `[block_bytes]` uint8. A key says everything that
shaped the block (`engine.kv_cache.hashing`), so a payload never changes under its key. The step
loop asks `has`; reads and writes happen in transfer threads: an implementation takes both at once.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.kv_cache.block_index import BlockKey

Payload = npt.NDArray[np.uint8]


class BlockStoreError(Exception):
    """A block cannot be read or written; the message says which and why."""


class BlockStore(Protocol):
    """Blocks by key, bounded in bytes; what was not used for the longest time goes first."""

    def has(self, key: BlockKey) -> bool:
        """Whether a block is there, as far as can be told without reading it."""

    def read(self, key: BlockKey) -> Payload:
        """Returns a block's bytes; whoever gets them only reads them.

        Raises:
            BlockStoreError: it is not there (any more), or is not what was stored.
        """

    def write(self, key: BlockKey, payload: Payload) -> None:
        """Keeps a block; nothing where it is there already.

        Raises:
            BlockStoreError: it cannot be kept.
        """
