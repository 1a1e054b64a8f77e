"""The paged KV cache as tensors: its layout, its size, how many blocks fit.

A tensor is `[num_blocks, block_size, num_kv_heads, key_dim + value_dim]`: of each head a token's
key, then its value. So a block is one contiguous piece of memory, and one gather or one write a
layer serves keys and values together. A tensor is shared by the layers at one place of all groups
(`layer_groups`). Which block holds what is the scheduler's business (`engine.kv_cache`); block 0 is
its null block, which only padding writes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from engine.runner.layer_groups import LayerGroup

CPU_KV_BYTES = 1 << 30
"""KV cache on CPU where its size is not set: 1 GiB."""


class KVCacheSizeError(ValueError):
    """Not even two KV blocks fit into the memory that is left for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """What one token's keys and values are, and which layers keep them together."""

    groups: tuple[LayerGroup, ...]
    num_kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype

    @property
    def num_tensors(self) -> int:
        """Layers of the longest group."""
        return max(len(group.layers) for group in self.groups)

    @property
    def token_bytes(self) -> int:
        """Memory of one token in one layer."""
        return self.num_kv_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize

    def block_bytes(self, block_size: int) -> int:
        """Returns the memory of one KV block over the layers of its group."""
        return self.num_tensors * block_size * self.token_bytes


@dataclass(slots=True, eq=False)
class PagedKVCache:
    """The cache of all layers, and the buffer that gathered keys and values pass through.

    Attributes:
        layers: each layer's tensor, zero at first: padding reads the null block, and a NaN there
            would survive the mask. Layers of different groups may share one.
        groups: the layers of each block table.
        key_dim: where in the last dimension values begin.
        group_of: the group of each layer.
    """

    layers: list[torch.Tensor]
    groups: tuple[LayerGroup, ...]
    key_dim: int
    group_of: list[int] = field(init=False)
    _gathered: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._gathered = self.layers[0].new_empty(0)
        self.group_of = [0] * len(self.layers)
        for index, group in enumerate(self.groups):
            for layer in group.layers:
                self.group_of[layer] = index

    @classmethod
    def allocate(
        cls, shape: KVShape, *, num_blocks: int, block_size: int, device: torch.device
    ) -> PagedKVCache:
        """Returns an empty cache. On CPU its memory is taken page by page, as blocks are used."""
        size = (num_blocks, block_size, shape.num_kv_heads, shape.key_dim + shape.value_dim)
        tensors = [
            torch.zeros(size, dtype=shape.dtype, device=device) for _ in range(shape.num_tensors)
        ]
        return cls(_spread(tensors, shape.groups), shape.groups, shape.key_dim)

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self.layers[0].shape[1]

    @property
    def token_bytes(self) -> int:
        """Memory of one token in one layer."""
        return self.layers[0][0, 0].nbytes

    def keys_and_values(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a layer's keys and values, `[num_blocks, block_size, num_kv_heads, dim]` each.

        They are views with the same strides, and neither is contiguous: a token's key and value
        lie side by side.
        """
        cache = self.layers[layer]
        return cache[..., : self.key_dim], cache[..., self.key_dim :]

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Stores new tokens: key and value `[num_tokens, num_kv_heads, dim]` at `slots`.

        What is not finite becomes 0. A block outlives its request, and whoever gets it next reads
        it to its end: a mask stops numbers there, but not a NaN.
        """
        cache = self.layers[layer]
        both = torch.cat((key, value), dim=-1).nan_to_num_(0.0, 0.0, 0.0)
        cache.view(-1, *cache.shape[2:]).index_copy_(0, slots, both)

    def gather(self, layer: int, blocks: torch.Tensor) -> torch.Tensor:
        """Returns the blocks' content, `[len(blocks), block_size, num_kv_heads, both dims]`.

        The memory is used again by the next call: a fresh allocation of this size would cost more
        in page faults than the copy itself.
        """
        cache = self.layers[layer]
        numel = len(blocks) * cache[0].numel()
        if self._gathered.numel() < numel:
            self._gathered = cache.new_empty(numel)
        out = self._gathered[:numel].view(len(blocks), *cache.shape[1:])
        return torch.index_select(cache, 0, blocks, out=out)


def _spread(tensors: Sequence[torch.Tensor], groups: Sequence[LayerGroup]) -> list[torch.Tensor]:
    """Returns the tensor of each layer: that of its place in its group."""
    places = {layer: i for group in groups for i, layer in enumerate(group.layers)}
    return [tensors[places[layer]] for layer in range(len(places))]


def choose_num_blocks(
    shape: KVShape,
    *,
    block_size: int,
    budget_bytes: int,
    override: int | None = None,
    draft_block_bytes: int = 0,
) -> int:
    """Returns the number of KV blocks, the null block among them: what fits, or the override.

    Args:
        shape: of the model's keys and values.
        block_size: tokens of a block.
        budget_bytes: memory for the KV cache.
        override: the number itself.
        draft_block_bytes: what a draft model keeps of each block.

    Raises:
        KVCacheSizeError: fewer than two blocks fit.
    """
    if override is not None:
        return override
    block_bytes = shape.block_bytes(block_size) + draft_block_bytes
    num_blocks = max(0, budget_bytes) // block_bytes
    if num_blocks < 2:
        raise KVCacheSizeError(
            f"{budget_bytes:,} bytes are left for the KV cache, but two blocks of {block_size} "
            f"tokens need {2 * block_bytes:,}: lower --block-size or --max-num-batched-tokens, "
            "raise --gpu-memory-utilization or --kv-cache-memory-bytes, or use a smaller model"
        )
    return num_blocks
