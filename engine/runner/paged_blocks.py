"""Blocks of the paged KV cache as bytes, over all layers, for a KV connector.

bytes of a block:   tensor 0 | tensor 1 | ...      each [block_size, num_kv_heads, both dims]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.connectors.block_store import Payload
from engine.runner.kv_tensors import PagedKVCache


class PagedBlocks:
    """Reads and writes whole blocks of a cache. Only the thread that runs the model may.

    Layers may share a tensor: each is moved once.
    """

    def __init__(self, cache: PagedKVCache) -> None:
        unique = {tensor.data_ptr(): tensor for tensor in cache.layers}
        self._tensors = [
            tensor.view(torch.uint8).reshape(len(tensor), -1) for tensor in unique.values()
        ]
        self._widths = [tensor.shape[1] for tensor in self._tensors]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return sum(self._widths)

    def read(self, block_ids: Sequence[int]) -> Payload:
        """Returns a copy of blocks, `[len(block_ids), block_bytes]`."""
        ids = torch.tensor(block_ids, device=self._tensors[0].device)
        parts = [tensor.index_select(0, ids) for tensor in self._tensors]
        read: Payload = torch.cat(parts, dim=1).cpu().numpy()
        return read

    def write(self, block_ids: Sequence[int], payload: Payload) -> None:
        """Puts `[len(block_ids), block_bytes]` into blocks."""
        device = self._tensors[0].device
        ids = torch.tensor(block_ids, device=device)
        content = torch.from_numpy(np.ascontiguousarray(payload)).to(device)
        parts = torch.split(content, self._widths, dim=1)
        for tensor, part in zip(self._tensors, parts, strict=True):
            tensor.index_copy_(0, ids, part)
