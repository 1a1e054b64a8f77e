"""The paged KV cache as tensors: its layout, its size, how many blocks fit.

A layer's cache is `[num_blocks, block_size, 2 * num_kv_heads, head_dim]`: a token's key heads, then
its value heads. So a block is one contiguous piece of memory, and one gather or one write a layer
serves keys and values together. Which block holds what is the scheduler's business
(`engine.kv_cache`); block 0 is its null block and is never written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

CPU_KV_BYTES = 1 << 30
"""KV cache on CPU where its size is not set: 1 GiB."""


class KVCacheSizeError(ValueError):
    """Not even two KV blocks fit into the memory that is left for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """What one token's keys and values are."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    def block_bytes(self, block_size: int) -> int:
        """Returns the memory of one KV block over all layers."""
        per_token = 2 * self.num_kv_heads * self.head_dim * self.dtype.itemsize
        return self.num_layers * block_size * per_token


@dataclass(slots=True, eq=False)
class PagedKVCache:
    """The cache of all layers, and the buffer that gathered keys and values pass through.

    `layers[i]` is `[num_blocks, block_size, 2 * num_kv_heads, head_dim]`, zero at first: padding
    reads the null block, and a NaN there would survive the mask.
    """

    layers: list[torch.Tensor]
    _gathered: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._gathered = self.layers[0].new_empty(0)

    @classmethod
    def allocate(
        cls, shape: KVShape, *, num_blocks: int, block_size: int, device: torch.device
    ) -> PagedKVCache:
        """Returns an empty cache. On CPU its memory is taken page by page, as blocks are used."""
        size = (num_blocks, block_size, 2 * shape.num_kv_heads, shape.head_dim)
        return cls(
            [torch.zeros(size, dtype=shape.dtype, device=device) for _ in range(shape.num_layers)]
        )

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Stores new tokens: key and value `[num_tokens, num_kv_heads, head_dim]` at `slots`."""
        cache = self.layers[layer]
        cache.view(-1, *cache.shape[2:]).index_copy_(0, slots, torch.cat((key, value), dim=1))

    def gather(self, layer: int, blocks: torch.Tensor) -> torch.Tensor:
        """Returns the blocks' content, `[len(blocks), block_size, 2 * num_kv_heads, head_dim]`.

        The memory is used again by the next call: a fresh allocation of this size would cost more
        in page faults than the copy itself.
        """
        cache = self.layers[layer]
        numel = len(blocks) * cache[0].numel()
        if self._gathered.numel() < numel:
            self._gathered = cache.new_empty(numel)
        out = self._gathered[:numel].view(len(blocks), *cache.shape[1:])
        return torch.index_select(cache, 0, blocks, out=out)


def choose_num_blocks(
    shape: KVShape,
    *,
    block_size: int,
    device: torch.device,
    gpu_memory_utilization: float,
    override: int | None = None,
) -> int:
    """Returns the number of KV blocks, the null block among them.

    Without an override: 1 GiB on CPU; on CUDA the utilised share of the device, less what is in use
    once the weights are loaded (call it then).

    Raises:
        KVCacheSizeError: fewer than two blocks fit.
    """
    if override is not None:
        return override
    block_bytes = shape.block_bytes(block_size)
    if device.type == "cuda":
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        budget = int(total_bytes * gpu_memory_utilization) - (total_bytes - free_bytes)
    else:
        budget = CPU_KV_BYTES
    num_blocks = max(0, budget) // block_bytes
    if num_blocks < 2:
        raise KVCacheSizeError(
            f"{budget:,} bytes are left for the KV cache, but two blocks of {block_size} tokens "
            f"need {2 * block_bytes:,}: lower --block-size, raise --gpu-memory-utilization or use "
            "a smaller model"
        )
    return num_blocks
