"""FlashInfer's paged attention: prefills, decodes and both in one step.

A step is planned on the host, once for all layers of a KV group (which CUDA block does what), and
then run layer by layer. In a CUDA graph the plan is written where the recorded kernels read it.

Keys and values are handed over as views of the cache: the kernel takes any strides, as long as both
have the same and the last dimension is contiguous.

Source: FlashInfer, flashinfer/prefill.py (`BatchPrefillWithPagedKVCacheWrapper`), and its page on
KV layouts (docs/tutorials/kv_layout.rst).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.compilation import AttentionBackendName
from engine.runner.attention_backend import GraphAttention
from engine.runner.attention_needs import LayerNeeds
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_buffers import DecodeBuffers
from engine.runner.decode_shapes import DecodeShape, PaddedDecodes
from engine.runner.kernels.paged_tables import paged_rows
from engine.runner.kernels.sinks import with_sinks
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention
from engine.runner.to_device import to_device

WORKSPACE_BYTES = 256 << 20
"""For partial results of long sequences, which are cut up among CUDA blocks."""

LN_2 = math.log(2.0)


def complaint(layers: Sequence[LayerNeeds], *, dtype: torch.dtype) -> str | None:
    """Returns what this kernel cannot do of what a model wants; None where it can do all.

    Args:
        layers: what each wants.
        dtype: of the model.
    """
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in float16 and bfloat16, the model is {dtype}".replace("torch.", "")
    for layer in layers:
        if layer.key_dim != layer.value_dim:
            return f"keys have {layer.key_dim} dimensions and values {layer.value_dim}"
    if len({(layer.num_heads, layer.scaling, layer.softcap) for layer in layers}) > 1:
        return "its layers differ in heads, scaling or bound, and a plan is for all of them"
    return None


class FlashInferBackend:
    """FlashInfer over the paged cache.

    Args:
        layer: what any of the model's layers wants: all want the same, windows apart.
    """

    name: AttentionBackendName = "FLASHINFER"

    def __init__(self, cache: PagedKVCache, layer: LayerNeeds) -> None:
        self._cache = cache
        self._layer = layer
        self._workspace = torch.zeros(
            WORKSPACE_BYTES, dtype=torch.uint8, device=cache.layers[0].device
        )
        self._wrappers = [_wrapper(self._workspace) for _ in cache.groups]
        self._graph_buffers: _GraphBuffers | None = None

    def step(self, inputs: BatchInputs) -> StepAttention:
        """Returns the attention of a step, planned."""
        self.plan(self._wrappers, inputs.query_lens, inputs.seq_lens, inputs.block_tables)
        slots = to_device(inputs.slot_mapping, self._workspace.device)
        return _FlashInferStep(self._cache, slots, self._wrappers)

    def for_graph(self, buffers: DecodeBuffers, shape: DecodeShape) -> GraphAttention:
        """Returns the attention of a shape, with wrappers whose plans stay where they are."""
        if self._graph_buffers is None:
            self._graph_buffers = _GraphBuffers(self._workspace, buffers)
        num_groups = len(self._cache.groups)
        wrappers = [self._graph_buffers.wrapper(group, shape) for group in range(num_groups)]
        return _FlashInferDecodes(self, self._cache, buffers, shape, wrappers)

    def plan(
        self,
        wrappers: Sequence[Any],
        query_lens: npt.NDArray[np.int64],
        seq_lens: npt.NDArray[np.int64],
        block_tables: npt.NDArray[np.int32],
    ) -> None:
        """Plans a step: a wrapper a KV group.

        Args:
            query_lens: `[num_seqs]`.
            seq_lens: `[num_seqs]`.
            block_tables: `[num_groups, num_seqs, most blocks]`.
        """
        query_starts = np.concatenate(([0], np.cumsum(query_lens))).astype(np.int32)
        layer, cache = self._layer, self._cache
        for wrapper, group, tables in zip(wrappers, cache.groups, block_tables, strict=True):
            window = group.sliding_window
            rows = paged_rows(
                query_lens, seq_lens, tables, block_size=cache.block_size, sliding_window=window
            )
            # The kernel's scheduler runs on the host and reads the starts there.
            wrapper.plan(
                torch.from_numpy(query_starts),
                torch.from_numpy(rows.starts),
                to_device(rows.blocks, self._workspace.device),
                torch.from_numpy(rows.last_block_lens),
                num_qo_heads=layer.num_heads,
                num_kv_heads=layer.num_kv_heads,
                head_dim_qk=layer.key_dim,
                page_size=cache.block_size,
                causal=True,
                sm_scale=layer.scaling,
                window_left=-1 if window is None else window - 1,
                logits_soft_cap=layer.softcap,
                q_data_type=cache.layers[0].dtype,
                kv_data_type=cache.layers[0].dtype,
            )


def _wrapper(workspace: torch.Tensor, **graph: Any) -> Any:
    import flashinfer

    return flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", **graph)


class _GraphBuffers:
    """What the wrappers of all shapes share: one graph runs at a time, planned right before."""

    def __init__(self, workspace: torch.Tensor, buffers: DecodeBuffers) -> None:
        num_groups, num_seqs, max_blocks = buffers.block_tables.shape
        self._workspace = workspace
        device = workspace.device

        def room(count: int) -> list[torch.Tensor]:
            return [torch.zeros(count, dtype=torch.int32, device=device) for _ in range(num_groups)]

        self._query_starts, self._starts = room(num_seqs + 1), room(num_seqs + 1)
        self._blocks, self._last_block_lens = room(num_seqs * max_blocks), room(num_seqs)

    def wrapper(self, group: int, shape: DecodeShape) -> Any:
        """Returns a KV group's wrapper for a shape."""
        return _wrapper(
            self._workspace,
            use_cuda_graph=True,
            qo_indptr_buf=self._query_starts[group][: shape.num_seqs + 1],
            paged_kv_indptr_buf=self._starts[group][: shape.num_seqs + 1],
            paged_kv_indices_buf=self._blocks[group],
            paged_kv_last_page_len_buf=self._last_block_lens[group][: shape.num_seqs],
            backend="fa2",
        )


@dataclass(frozen=True, slots=True)
class _FlashInferDecodes:
    backend: FlashInferBackend
    cache: PagedKVCache
    buffers: DecodeBuffers
    shape: DecodeShape
    wrappers: Sequence[Any]

    def plan(self, decodes: PaddedDecodes) -> None:
        """Plans a step where the recorded kernels read it."""
        self.backend.plan(self.wrappers, decodes.query_lens, decodes.seq_lens, decodes.block_tables)

    def step(self) -> StepAttention:
        """Returns attention with what was planned last."""
        slots = self.buffers.slot_mapping[:, : self.shape.num_tokens]
        return _FlashInferStep(self.cache, slots, self.wrappers)


@dataclass(frozen=True, slots=True)
class _FlashInferStep:
    cache: PagedKVCache
    slot_mapping: torch.Tensor
    wrappers: Sequence[Any]

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        """Returns a layer's output (see `StepAttention`)."""
        wrapper = self.wrappers[self.cache.group_of[call.layer]]
        paged = self.cache.keys_and_values(call.layer)
        if call.sinks is None:
            output: torch.Tensor = wrapper.run(query, paged)
            return output
        output, log_sums = wrapper.run(query, paged, return_lse=True)
        return with_sinks(output, log_sums * LN_2, call.sinks)  # its logarithms are to base 2
