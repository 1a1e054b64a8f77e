"""What all layers of one step share: who attends together, and where everybody's blocks are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.runner.batch_inputs import BatchInputs
from engine.runner.gathered_attention import MAX_GATHERED_BYTES, GatheredAttention
from engine.runner.grouping import Group, group_sequences
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall
from engine.runner.to_device import to_device


@dataclass(slots=True)
class GroupTensors:
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
    groups: list[list[tuple[GroupTensors, torch.Tensor]]]

    @classmethod
    def build(
        cls, inputs: BatchInputs, cache: PagedKVCache, device: torch.device
    ) -> AttentionMetadata:
        """Returns the metadata of a step, on `device`."""
        return cls(
            cache=cache,
            slot_mapping=to_device(inputs.slot_mapping, device),
            groups=_groups(inputs, cache, device),
        )

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        """Returns a layer's output (see `StepAttention`)."""
        groups = self.groups[self.cache.group_of[call.layer]]
        return GatheredAttention(self.cache, call).attend_groups(query, groups)


def _groups(
    inputs: BatchInputs, cache: PagedKVCache, device: torch.device
) -> list[list[tuple[GroupTensors, torch.Tensor]]]:
    """Returns who attends together in each KV group, and what is gathered for them."""
    block_size = cache.block_size
    alike: dict[int | None, list[tuple[Group, GroupTensors]]] = {}
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
            (tensors, to_device(_gathered_blocks(group, tables), device))
            for group, tensors in alike[kv_group.sliding_window]
        ]
        for kv_group, tables in zip(cache.groups, inputs.block_tables, strict=True)
    ]


def _group_tensors(
    group: Group, block_size: int, sliding_window: int | None, device: torch.device
) -> GroupTensors:
    num_queries = int(group.query_lens.max())
    within = np.minimum(np.arange(num_queries), group.query_lens[:, None] - 1)
    positions = (group.seq_lens - group.query_lens)[:, None] + within
    tensors = GroupTensors(
        size=len(group.sequences),
        num_keys=group.num_blocks * block_size,
        first_keys=to_device(group.first_blocks * block_size, device),
        query_positions=to_device(positions, device),
        queries=slice(
            int(group.query_start[0]), int(group.query_start[0]) + int(group.query_lens.sum())
        ),
        sliding_window=sliding_window,
    )
    if not group.is_uniform:
        queries = (group.query_start[:, None] + within).reshape(-1)
        real = np.flatnonzero(np.arange(num_queries) < group.query_lens[:, None])
        tensors.queries = to_device(queries, device)
        tensors.real = to_device(real, device)
        tensors.targets = to_device(queries[real], device)
    return tensors


def _gathered_blocks(group: Group, block_tables: np.ndarray) -> np.ndarray:
    """Returns the blocks `[size * num_blocks]` from each sequence's first on, null ones behind."""
    places = group.first_blocks[:, None] + np.arange(group.num_blocks)
    last = block_tables.shape[1] - 1
    blocks = block_tables[group.sequences[:, None], np.minimum(places, last)]
    blocks[places > last] = 0
    gathered: np.ndarray = blocks.reshape(-1)
    return gathered
