"""Attention over the paged KV cache, in the place of a `transformers` model's own.

The model runs on flat tokens (batch 1). In each layer its attention calls `paged_attention`, which
stores the new keys and values in the cache, gathers what each group of sequences sees, and attends
causally behind the tokens computed before. What a step's layers share comes in as
`AttentionMetadata`, through the model's keyword arguments.

Gathering copies, but through a buffer that stays in the processor's cache: measured on CPU, that
costs no more than attending to the same keys in place. A sequence that is longer than the buffer is
attended to in parts.

Source: `transformers`, AttentionInterface (docs/source/en/attention_interface.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

from engine.runner.attention_math import Part, attend, attend_in_parts
from engine.runner.attention_metadata import MAX_GATHERED_BYTES, AttentionMetadata, GroupTensors
from engine.runner.kv_tensors import PagedKVCache

ATTENTION_NAME = "stepscope_paged"
"""The name under which models find `paged_attention`."""


def register() -> None:
    """Makes `paged_attention` known to `transformers`; doing so again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention_metadata: AttentionMetadata,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Returns attention's output `[1, num_tokens, num_heads, value_dim]`, and no weights.

    What a layer may ask for has been looked at when its model was loaded (`attention_needs`), its
    sliding window among it.

    Args:
        module: the layer; `module.layer_idx` is its place.
        query: `[1, num_heads, num_tokens, key_dim]`, all sequences' tokens side by side.
        key: `[1, num_kv_heads, num_tokens, key_dim]`, of the same tokens.
        value: `[1, num_kv_heads, num_tokens, value_dim]`.
        attention_mask: is None; the metadata says who sees what.
        attention_metadata: the step's.
        scaling: of the scores; None is `key_dim ** -0.5`.
        softcap: the scores' bound; None is none.
        s_aux: `[num_heads]`, attention sinks; None is none.
    """
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    cache = attention_metadata.cache
    kv_group = cache.group_of[layer]
    slots = attention_metadata.slot_mapping[kv_group]
    cache.write(layer, slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    groups = attention_metadata.groups[kv_group]
    flat_query = query[0].transpose(0, 1)
    call = _LayerCall(cache, layer, scaling, softcap, s_aux)
    if len(groups) == 1 and groups[0][0].real is None:
        return call.attend(flat_query, *groups[0])[None], None
    output = value.new_empty(*flat_query.shape[:2], value.shape[3])
    for group, blocks in groups:
        attended = call.attend(flat_query[group.queries], group, blocks)
        if group.real is None:
            output[group.queries] = attended
        else:
            output[group.targets] = attended[group.real]
    return output[None], None


@dataclass(frozen=True, slots=True)
class _LayerCall:
    """One layer's attention in one step, apart from who attends."""

    cache: PagedKVCache
    layer: int
    scaling: float | None
    softcap: float | None
    sinks: torch.Tensor | None

    def attend(
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
            output = attend_in_parts(query, self._parts(blocks, mask), scaling=self.scaling)
        else:
            output = attend(
                query,
                *self._keys_and_values(blocks, group.size, query.dtype),
                mask,
                scaling=self.scaling,
                softcap=self.softcap,
                sinks=self.sinks,
            )
        return output.reshape(-1, num_heads, output.shape[3]).to(dtype)

    def _goes_in_parts(self, query: torch.Tensor, group: GroupTensors) -> bool:
        """Whether one query sees more than what should be gathered at once."""
        return (
            query.shape[:2] == (1, 1)
            and not query.is_cuda
            and group.num_keys * self.cache.token_bytes > MAX_GATHERED_BYTES["cpu"]
            and self.softcap is None
            and self.sinks is None
            and 2 * self.cache.key_dim == self.cache.layers[self.layer].shape[3]
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
        """Returns `[size, num_kv_heads, keys, dim]` of each, in memory that is used again."""
        gathered = self.cache.gather(self.layer, blocks).to(dtype)
        gathered = gathered.view(size, -1, *gathered.shape[2:]).transpose(1, 2)
        return gathered[..., : self.cache.key_dim], gathered[..., self.cache.key_dim :]
