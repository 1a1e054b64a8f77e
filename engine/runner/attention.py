"""Attention over the paged KV cache, in the place of a `transformers` model's own.

The model runs on flat tokens (batch 1). In each layer its attention calls `paged_attention`, which
stores the new keys and values in the cache, gathers what each group of sequences sees, and attends
causally behind the tokens computed before. What a step's layers share comes in as
`AttentionMetadata`, through the model's keyword arguments.

Source: `transformers`, AttentionInterface (docs/source/en/attention_interface.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from transformers import AttentionInterface

from engine.runner.grouping import Group, group_sequences
from engine.runner.input_batch import BatchInputs
from engine.runner.kv_tensors import PagedKVCache

ATTENTION_NAME = "stepscope_paged"
"""The name under which models find `paged_attention`."""

MAX_GROUP_TOKENS = {"cpu": 8192, "cuda": 131072}
"""Most keys gathered at once: on CPU they should stay in the processor's cache."""


@dataclass(slots=True)
class _GroupTensors:
    """A group on the device.

    Attributes:
        size: sequences in it.
        blocks: `[size * num_blocks]`, their block tables, padded.
        query_positions: `[size, queries]`, place of each query in its sequence.
        queries: the group's part of the flat tokens: a slice, or padded indices `[size * queries]`.
        real: `[num_real]`, which of the padded queries are real ones; None for a slice.
        targets: `[num_real]`, the flat tokens that they are; None for a slice.
        masks: additive masks by sliding window, shared by the layers.
    """

    size: int
    num_keys: int
    blocks: torch.Tensor
    query_positions: torch.Tensor
    queries: slice | torch.Tensor
    real: torch.Tensor | None = None
    targets: torch.Tensor | None = None
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def mask(self, sliding_window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """Returns `[size, 1, queries, num_keys]`: 0 where a query sees a key, else -inf."""
        mask = self.masks.get(sliding_window)
        if mask is None:
            positions = self.query_positions[:, None, :, None]
            keys = torch.arange(self.num_keys, device=positions.device)
            hidden = keys > positions
            if sliding_window is not None:
                hidden |= keys <= positions - sliding_window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device)
            mask.masked_fill_(hidden, float("-inf"))
            self.masks[sliding_window] = mask
        return mask


@dataclass(slots=True)
class AttentionMetadata:
    """What all layers of one step share."""

    cache: PagedKVCache
    slot_mapping: torch.Tensor
    groups: list[_GroupTensors]

    @classmethod
    def build(
        cls, inputs: BatchInputs, cache: PagedKVCache, device: torch.device
    ) -> AttentionMetadata:
        """Returns the metadata of a step, on `device`."""
        groups = group_sequences(
            inputs.query_lens,
            inputs.seq_lens,
            block_size=cache.layers[0].shape[1],
            max_group_tokens=MAX_GROUP_TOKENS[device.type],
        )
        return cls(
            cache=cache,
            slot_mapping=torch.from_numpy(inputs.slot_mapping).to(device),
            groups=[
                _group_tensors(group, inputs, cache.layers[0].shape[1], device) for group in groups
            ],
        )


def _group_tensors(
    group: Group, inputs: BatchInputs, block_size: int, device: torch.device
) -> _GroupTensors:
    num_queries = int(group.query_lens.max())
    within = np.minimum(np.arange(num_queries), group.query_lens[:, None] - 1)
    positions = (group.seq_lens - group.query_lens)[:, None] + within
    tensors = _GroupTensors(
        size=len(group.sequences),
        num_keys=group.num_blocks * block_size,
        blocks=torch.from_numpy(
            inputs.block_tables[group.sequences, : group.num_blocks].reshape(-1)
        ).to(device),
        query_positions=torch.from_numpy(positions).to(device),
        queries=slice(
            int(group.query_start[0]), int(group.query_start[0]) + int(group.query_lens.sum())
        ),
    )
    if not group.is_uniform:
        queries = (group.query_start[:, None] + within).reshape(-1)
        real = np.flatnonzero(np.arange(num_queries) < group.query_lens[:, None])
        tensors.queries = torch.from_numpy(queries).to(device)
        tensors.real = torch.from_numpy(real).to(device)
        tensors.targets = torch.from_numpy(queries[real]).to(device)
    return tensors


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
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Returns attention's output `[1, num_tokens, num_heads, head_dim]`, and no weights.

    Args:
        module: the layer; `module.layer_idx` is its place.
        query: `[1, num_heads, num_tokens, head_dim]`, all sequences' tokens side by side.
        key: `[1, num_kv_heads, num_tokens, head_dim]`, of the same tokens.
        value: like `key`.
        attention_mask: must be None; the metadata says who sees what.
        attention_metadata: the step's.
        scaling: of the scores; None is `head_dim ** -0.5`.
        sliding_window: keys that a query sees, its own among them; None is all.
        softcap: must be None.
        s_aux: attention sinks; must be None.

    Raises:
        NotImplementedError: the model wants something that this attention does not do.
    """
    if attention_mask is not None or softcap is not None or s_aux is not None:
        raise NotImplementedError(
            f"{type(module).__name__} asks for a mask, score soft-capping or attention sinks: "
            "paged attention has none of them; use another model"
        )
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    metadata = attention_metadata
    metadata.cache.write(
        layer, metadata.slot_mapping, key[0].transpose(0, 1), value[0].transpose(0, 1)
    )
    flat_query = query[0].transpose(0, 1)
    if len(metadata.groups) == 1 and metadata.groups[0].real is None:
        only = metadata.groups[0]
        return _attend(flat_query, only, metadata.cache, layer, scaling, sliding_window)[None], None
    output = torch.empty_like(flat_query, memory_format=torch.contiguous_format)
    for group in metadata.groups:
        attended = _attend(
            flat_query[group.queries], group, metadata.cache, layer, scaling, sliding_window
        )
        if group.real is None:
            output[group.queries] = attended
        else:
            output[group.targets] = attended[group.real]
    return output[None], None


def _attend(
    query: torch.Tensor,
    group: _GroupTensors,
    cache: PagedKVCache,
    layer: int,
    scaling: float | None,
    sliding_window: int | None,
) -> torch.Tensor:
    """Returns a group's output `[size * queries, num_heads, head_dim]` for its padded queries."""
    num_heads, head_dim = query.shape[1:]
    gathered = cache.gather(layer, group.blocks)
    num_kv_heads = gathered.shape[2] // 2
    gathered = gathered.view(group.size, group.num_keys, 2 * num_kv_heads, head_dim).transpose(1, 2)
    output = F.scaled_dot_product_attention(
        query.reshape(group.size, -1, num_heads, head_dim).transpose(1, 2),
        gathered[:, :num_kv_heads],
        gathered[:, num_kv_heads:],
        attn_mask=group.mask(sliding_window, query.dtype),
        scale=scaling,
        enable_gqa=num_heads != num_kv_heads,
    )
    return output.transpose(1, 2).reshape(-1, num_heads, head_dim)
