"""Attention over the paged KV cache, in the place of a `transformers` model's own.

The model runs on flat tokens (batch 1). In each layer its attention calls `paged_attention`, which
stores the new keys and values in the cache, gathers what each group of sequences sees, and attends
causally behind the tokens computed before. What a step's layers share comes in as
`AttentionMetadata`, through the model's keyword arguments.

Gathering copies, but through a buffer that stays in the processor's cache: measured on CPU, that
costs no more than attending to the same keys in place.

Source: `transformers`, AttentionInterface (docs/source/en/attention_interface.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface

from engine.runner.attention_math import attend
from engine.runner.batch_inputs import BatchInputs
from engine.runner.grouping import Group, group_sequences
from engine.runner.kv_tensors import PagedKVCache

ATTENTION_NAME = "stepscope_paged"
"""The name under which models find `paged_attention`."""

MAX_GATHERED_BYTES = {"cpu": 4 << 20, "cuda": 256 << 20}
"""Most keys and values gathered at once: on CPU they should stay in the processor's cache."""


@dataclass(slots=True)
class _GroupTensors:
    """A group on the device; KV groups with equal windows share it.

    Attributes:
        size: sequences in it.
        num_keys: keys gathered for each.
        first_keys: `[size]`, place of the first of those keys in its sequence.
        query_positions: `[size, queries]`, place of each query in its sequence.
        queries: the group's part of the flat tokens: a slice, or padded indices `[size * queries]`.
        sliding_window: keys that a query sees; None is all.
        real: `[num_real]`, which of the padded queries are real ones; None for a slice.
        targets: `[num_real]`, the flat tokens that they are; None for a slice.
    """

    size: int
    num_keys: int
    first_keys: torch.Tensor
    query_positions: torch.Tensor
    queries: slice | torch.Tensor
    sliding_window: int | None
    real: torch.Tensor | None = None
    targets: torch.Tensor | None = None
    _mask: torch.Tensor | None = None

    def mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns `[size, 1, queries, num_keys]`: 0 where a query sees a key, else -inf."""
        if self._mask is None:
            positions = self.query_positions[:, None, :, None]
            within = torch.arange(self.num_keys, device=positions.device)
            keys = self.first_keys[:, None, None, None] + within
            hidden = keys > positions
            if self.sliding_window is not None:
                hidden |= keys <= positions - self.sliding_window
            self._mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device)
            self._mask.masked_fill_(hidden, float("-inf"))
        return self._mask


@dataclass(slots=True)
class AttentionMetadata:
    """What all layers of one step share.

    Attributes:
        slot_mapping: `[num_kv_groups, num_tokens]`, where their keys and values go.
        groups: of each KV group the sequences that attend together, and what is gathered of their
            block tables, `[size * num_blocks]`, padded.
    """

    cache: PagedKVCache
    slot_mapping: torch.Tensor
    groups: list[list[tuple[_GroupTensors, torch.Tensor]]]

    @classmethod
    def build(
        cls, inputs: BatchInputs, cache: PagedKVCache, device: torch.device
    ) -> AttentionMetadata:
        """Returns the metadata of a step, on `device`."""
        return cls(
            cache=cache,
            slot_mapping=torch.from_numpy(inputs.slot_mapping).to(device),
            groups=_groups(inputs, cache, device),
        )


def _groups(
    inputs: BatchInputs, cache: PagedKVCache, device: torch.device
) -> list[list[tuple[_GroupTensors, torch.Tensor]]]:
    """Returns who attends together in each KV group, and what is gathered for them."""
    block_size = cache.block_size
    alike: dict[int | None, list[tuple[Group, _GroupTensors]]] = {}
    for window in {group.sliding_window for group in cache.groups}:
        groups = group_sequences(
            inputs.query_lens,
            inputs.seq_lens,
            block_size=block_size,
            max_group_tokens=MAX_GATHERED_BYTES[device.type] // cache.token_bytes,
            sliding_window=window,
        )
        alike[window] = [
            (group, _group_tensors(group, block_size, window, device)) for group in groups
        ]
    return [
        [
            (tensors, torch.from_numpy(_gathered_blocks(group, tables)).to(device))
            for group, tensors in alike[kv_group.sliding_window]
        ]
        for kv_group, tables in zip(cache.groups, inputs.block_tables, strict=True)
    ]


def _group_tensors(
    group: Group, block_size: int, sliding_window: int | None, device: torch.device
) -> _GroupTensors:
    num_queries = int(group.query_lens.max())
    within = np.minimum(np.arange(num_queries), group.query_lens[:, None] - 1)
    positions = (group.seq_lens - group.query_lens)[:, None] + within
    tensors = _GroupTensors(
        size=len(group.sequences),
        num_keys=group.num_blocks * block_size,
        first_keys=torch.from_numpy(group.first_blocks * block_size).to(device),
        query_positions=torch.from_numpy(positions).to(device),
        queries=slice(
            int(group.query_start[0]), int(group.query_start[0]) + int(group.query_lens.sum())
        ),
        sliding_window=sliding_window,
    )
    if not group.is_uniform:
        queries = (group.query_start[:, None] + within).reshape(-1)
        real = np.flatnonzero(np.arange(num_queries) < group.query_lens[:, None])
        tensors.queries = torch.from_numpy(queries).to(device)
        tensors.real = torch.from_numpy(real).to(device)
        tensors.targets = torch.from_numpy(queries[real]).to(device)
    return tensors


def _gathered_blocks(group: Group, block_tables: np.ndarray) -> np.ndarray:
    """Returns the blocks `[size * num_blocks]` from each sequence's first on, null ones behind."""
    places = group.first_blocks[:, None] + np.arange(group.num_blocks)
    last = block_tables.shape[1] - 1
    blocks = block_tables[group.sequences[:, None], np.minimum(places, last)]
    blocks[places > last] = 0
    gathered: np.ndarray = blocks.reshape(-1)
    return gathered


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
        self, query: torch.Tensor, group: _GroupTensors, blocks: torch.Tensor
    ) -> torch.Tensor:
        """Returns a group's output `[size * queries, num_heads, value_dim]`, padding included."""
        num_heads, key_dim = query.shape[1:]
        gathered = self.cache.gather(self.layer, blocks)
        gathered = gathered.view(group.size, group.num_keys, *gathered.shape[2:]).transpose(1, 2)
        dtype = query.dtype
        if (
            dtype is torch.float16 and not query.is_cuda
        ):  # most processors have no arithmetic for it
            query, gathered = query.float(), gathered.float()
        output = attend(
            query.reshape(group.size, -1, num_heads, key_dim),
            gathered[..., : self.cache.key_dim],
            gathered[..., self.cache.key_dim :],
            group.mask(query.dtype),
            scaling=self.scaling,
            softcap=self.softcap,
            sinks=self.sinks,
        )
        return output.reshape(-1, num_heads, output.shape[3]).to(dtype)
