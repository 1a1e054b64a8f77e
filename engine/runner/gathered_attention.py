"""Attention that gathers: a group's keys and values are laid side by side, then attended to.

Gathering copies, but on CPU through a buffer that stays in the processor's cache: measured, that
costs no more than attending to the same keys in place. A sequence that is longer than the buffer is
attended to in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.runner.attention_math import Part, attend, attend_in_parts
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall

if TYPE_CHECKING:
    from engine.runner.attention_metadata import GroupTensors

MAX_GATHERED_BYTES = {"cpu": 4 << 20, "cuda": 256 << 20}
"""Most keys and values gathered at once: on CPU they should stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class GatheredAttention:
    """One layer's attention in one step.

    With `fresh_memory` gathered keys and values lie in memory of their own: a CUDA graph must not
    hold on to a buffer that grows.
    """

    cache: PagedKVCache
    call: LayerCall
    fresh_memory: bool = False

    def attend_groups(
        self, query: torch.Tensor, groups: list[tuple[GroupTensors, torch.Tensor]]
    ) -> torch.Tensor:
        """Returns the output `[num_tokens, num_heads, value_dim]` of all groups.

        Args:
            query: `[num_tokens, num_heads, key_dim]`.
            groups: who attends together, and what is gathered of their block tables.
        """
        if len(groups) == 1 and groups[0][0].real is None:
            return self._attend(query, *groups[0])
        cache = self.cache
        value_dim = cache.layers[self.call.layer].shape[3] - cache.key_dim
        output = query.new_empty(*query.shape[:2], value_dim)
        for group, blocks in groups:
            attended = self._attend(query[group.queries], group, blocks)
            if group.real is None:
                output[group.queries] = attended
            else:
                output[group.targets] = attended[group.real]
        return output

    def _attend(
        self, query: torch.Tensor, group: GroupTensors, blocks: torch.Tensor
    ) -> torch.Tensor:
        """Returns a group's output `[size * queries, num_heads, value_dim]`, padding included."""
        num_heads, key_dim = query.shape[1:]
        dtype = query.dtype
        if dtype is torch.float16 and not query.is_cuda:
            query = query.float()  # most processors have no arithmetic for float16
        query = query.reshape(group.size, -1, num_heads, key_dim)
        mask = group.mask(query.dtype)
        if self._goes_in_parts(query, group):
            output = attend_in_parts(query, self._parts(blocks, mask), scaling=self.call.scaling)
        else:
            output = attend(
                query,
                *self._keys_and_values(blocks, group.size, query.dtype),
                mask,
                scaling=self.call.scaling,
                softcap=self.call.softcap,
                sinks=self.call.sinks,
            )
        return output.reshape(-1, num_heads, output.shape[3]).to(dtype)

    def _goes_in_parts(self, query: torch.Tensor, group: GroupTensors) -> bool:
        """Whether one query sees more than what should be gathered at once."""
        return (
            query.shape[:2] == (1, 1)
            and not query.is_cuda
            and group.num_keys * self.cache.token_bytes > MAX_GATHERED_BYTES["cpu"]
            and self.call.softcap is None
            and self.call.sinks is None
            and 2 * self.cache.key_dim == self.cache.layers[self.call.layer].shape[3]
        )

    def _parts(self, blocks: torch.Tensor, mask: torch.Tensor) -> Iterator[Part]:
        """Yields keys, values and mask of a few blocks, in memory that the next ones overwrite."""
        block_size = self.cache.block_size
        block_bytes = block_size * self.cache.token_bytes
        num_blocks = max(1, MAX_GATHERED_BYTES["cpu"] // block_bytes)
        masks = torch.split(mask, num_blocks * block_size, dim=3)
        for few, part in zip(torch.split(blocks, num_blocks), masks, strict=True):
            yield *self._keys_and_values(few, 1, mask.dtype), part

    def _keys_and_values(
        self, blocks: torch.Tensor, size: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns `[size, num_kv_heads, keys, dim]` of each."""
        if self.fresh_memory:
            gathered = self.cache.layers[self.call.layer].index_select(0, blocks)
        else:
            gathered = self.cache.gather(self.call.layer, blocks)
        gathered = gathered.to(dtype)
        gathered = gathered.view(size, -1, *gathered.shape[2:]).transpose(1, 2)
        return gathered[..., : self.cache.key_dim], gathered[..., self.cache.key_dim :]
