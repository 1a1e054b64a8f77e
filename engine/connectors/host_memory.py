"""KV blocks in the host's memory: a second, larger tier behind the paged KV cache."""

from __future__ import annotations

import threading
from collections import OrderedDict

from engine.connectors.block_store import BlockStoreError, Payload
from engine.kv_cache.block_index import BlockKey


class HostMemoryStore:
    """A bounded pool of blocks, least recently used first out.

    A load that reads a block keeps its bytes alive, so that an eviction meanwhile does no harm.

    Args:
        max_bytes: what it may hold; a block that is larger is refused.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._blocks: OrderedDict[BlockKey, Payload] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def has(self, key: BlockKey) -> bool:
        """Whether a block is there."""
        return key in self._blocks

    def read(self, key: BlockKey) -> Payload:
        """Returns a block's bytes.

        Raises:
            BlockStoreError: it has been evicted.
        """
        with self._lock:
            payload = self._blocks.get(key)
            if payload is None:
                raise BlockStoreError(f"block {key.hex()} has been evicted from host memory")
            self._blocks.move_to_end(key)
            return payload

    def write(self, key: BlockKey, payload: Payload) -> None:
        """Keeps a copy of a block, and evicts what that leaves no room for.

        Raises:
            BlockStoreError: it is larger than the whole pool.
        """
        if payload.nbytes > self.max_bytes:
            raise BlockStoreError(
                f"a block has {payload.nbytes:,} bytes but cpu_bytes_to_use is "
                f"{self.max_bytes:,}: raise it"
            )
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return
            while self.num_bytes + payload.nbytes > self.max_bytes:
                self.num_bytes -= self._blocks.popitem(last=False)[1].nbytes
            self._blocks[key] = payload.copy()
            self.num_bytes += payload.nbytes
