"""What an attention kernel has to offer, and the one that is always there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.compilation import AttentionBackendName
from engine.runner.attention_metadata import AttentionMetadata, GroupTensors
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_buffers import DecodeBuffers
from engine.runner.decode_mirror import DecodeMirrors
from engine.runner.decode_shapes import DecodeShape, PaddedDecodes
from engine.runner.gathered_attention import MAX_GATHERED_BYTES, GatheredAttention
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention


class GraphAttention(Protocol):
    """Attention of one decode shape, over buffers that stay where they are."""

    def plan(self, decodes: PaddedDecodes) -> None:
        """Gets ready for a step, on the host, before the graph is launched."""
        ...

    def step(self) -> StepAttention:
        """Returns what the model is handed; asked for whenever its kernels are recorded."""
        ...


class AttentionBackend(Protocol):
    """A kernel over a paged cache."""

    @property
    def name(self) -> AttentionBackendName: ...

    def step(self, inputs: BatchInputs) -> StepAttention:
        """Returns the attention of a step of any kind."""
        ...

    def for_graph(self, buffers: DecodeBuffers, shape: DecodeShape) -> GraphAttention | None:
        """Returns the attention of a decode shape; None where a graph of it would not pay."""
        ...


MakeBackend = Callable[[PagedKVCache], AttentionBackend]
"""Makes a kernel for a cache."""


class GatherBackend:
    """Gathers keys and values, and attends with torch: for every model, on every device.

    On CPU a batch that decodes on and on has what it gathered kept (`decode_mirror`).
    """

    name: AttentionBackendName = "TORCH_SDPA"

    def __init__(self, cache: PagedKVCache) -> None:
        self._cache = cache
        on_cpu = cache.layers[0].device.type == "cpu" and cache.layers[0].dtype != torch.float16
        self._mirrors = DecodeMirrors(cache) if on_cpu else None

    def step(self, inputs: BatchInputs) -> StepAttention:
        """Returns the attention of a step."""
        if self._mirrors is None:
            return self._gathered(inputs)
        return self._mirrors.step(inputs, lambda: self._gathered(inputs))

    def _gathered(self, inputs: BatchInputs) -> StepAttention:
        return AttentionMetadata.build(inputs, self._cache, self._cache.layers[0].device)

    def for_graph(self, buffers: DecodeBuffers, shape: DecodeShape) -> GraphAttention | None:
        """Returns the attention of a shape, unless too much would be gathered for it.

        A graph has to gather what the longest sequence could have, for all of them.
        """
        num_keys = buffers.block_tables.shape[2] * self._cache.block_size
        limit = MAX_GATHERED_BYTES[buffers.device.type]
        if shape.num_seqs * num_keys * self._cache.token_bytes > limit:
            return None
        return _GatheredDecodes(self._cache, buffers, shape)


@dataclass(frozen=True, slots=True)
class _GatheredDecodes:
    cache: PagedKVCache
    buffers: DecodeBuffers
    shape: DecodeShape

    def plan(self, decodes: PaddedDecodes) -> None:
        """Has nothing to do: all of it is in the buffers."""

    def step(self) -> StepAttention:
        """Returns attention over all blocks of the buffers, masked by the positions."""
        num_seqs, num_tokens = self.shape.num_seqs, self.shape.num_tokens
        tables = self.buffers.block_tables[:, :num_seqs]
        groups = [
            (
                GroupTensors(
                    size=num_seqs,
                    num_keys=tables.shape[2] * self.cache.block_size,
                    first_keys=torch.zeros_like(self.buffers.positions[:num_seqs]),
                    query_positions=self.buffers.positions[:num_tokens].view(num_seqs, -1),
                    queries=slice(0, num_tokens),
                    sliding_window=group.sliding_window,
                ),
                table.reshape(-1),
            )
            for group, table in zip(self.cache.groups, tables, strict=True)
        ]
        return _GatheredStep(self.cache, self.buffers.slot_mapping[:, :num_tokens], groups)


@dataclass(frozen=True, slots=True)
class _GatheredStep:
    cache: PagedKVCache
    slot_mapping: torch.Tensor
    groups: list[tuple[GroupTensors, torch.Tensor]]

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        """Returns a layer's output (see `StepAttention`)."""
        group = self.groups[self.cache.group_of[call.layer]]
        return GatheredAttention(self.cache, call, fresh_memory=True).attend_groups(query, [group])
