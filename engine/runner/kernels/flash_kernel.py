"""FlashAttention, as torch brings it: `torch.nn.attention.varlen`.

Its second generation is inside torch's CUDA builds and reads pages of 256 tokens or a multiple; the
third is a package of its own (`flash_attn_interface`), for Hopper, and reads pages of any size.

Source: torch/nn/attention/varlen.py and _fa3.py; FlashAttention's README on paged KV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from engine.compilation import AttentionBackendName
from engine.runner.attention_backend import GraphAttention
from engine.runner.attention_needs import LayerNeeds
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_buffers import DecodeBuffers
from engine.runner.decode_shapes import DecodeShape, PaddedDecodes
from engine.runner.kernels.sinks import with_sinks
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention
from engine.runner.to_device import to_device

PAGE_TOKENS = 256
"""FlashAttention 2 reads pages of a multiple of so many tokens."""

MAX_HEAD_DIM = 256

HOPPER = 9
"""Compute capability of the devices that FlashAttention 3 is made for."""


def has_third_generation(device: torch.device) -> bool:
    """Whether FlashAttention 3 is installed, and the device one that it runs on."""
    return (
        find_spec("flash_attn_interface") is not None
        and torch.cuda.get_device_capability(device)[0] == HOPPER
    )


def complaint(
    layers: Sequence[LayerNeeds], *, dtype: torch.dtype, block_size: int, any_page: bool
) -> str | None:
    """Returns what this kernel cannot do of what a model wants; None where it can do all.

    Args:
        layers: what each wants.
        dtype: of the model.
        block_size: tokens of a KV block.
        any_page: whether blocks may be of any size: FlashAttention 3.
    """
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in float16 and bfloat16, the model is {dtype}".replace("torch.", "")
    if any(layer.softcap is not None for layer in layers):
        return "torch's interface to it has no bound for scores, which this model wants"
    for layer in layers:
        if layer.key_dim != layer.value_dim:
            return f"keys have {layer.key_dim} dimensions and values {layer.value_dim}"
        if layer.key_dim % 8 or layer.key_dim > MAX_HEAD_DIM:
            return f"a head has {layer.key_dim} dimensions: it takes multiples of 8, up to 256"
    if block_size % PAGE_TOKENS and not any_page:
        return (
            f"blocks have {block_size} tokens and torch's FlashAttention 2 reads pages of "
            f"{PAGE_TOKENS}: --block-size {PAGE_TOKENS}, or FlashAttention 3 on a Hopper device "
            "(package flash_attn_interface)"
        )
    return None


class FlashBackend:
    """FlashAttention over the paged cache.

    Args:
        third_generation: use FlashAttention 3; it is activated for the whole process.
    """

    name: AttentionBackendName = "FLASH_ATTN"

    def __init__(self, cache: PagedKVCache, *, third_generation: bool) -> None:
        if third_generation:
            from torch.nn.attention import activate_flash_attention_impl

            activate_flash_attention_impl("FA3")
        self._cache = cache
        self._takes_key_starts = not third_generation

    def step(self, inputs: BatchInputs) -> StepAttention:
        """Returns the attention of a step."""
        device = self._cache.layers[0].device
        return _FlashStep(
            cache=self._cache,
            slot_mapping=to_device(inputs.slot_mapping, device),
            query_starts=to_device(inputs.query_start.astype(np.int32), device),
            seq_lens=to_device(inputs.seq_lens.astype(np.int32), device),
            block_tables=to_device(inputs.block_tables, device),
            max_query_len=int(inputs.query_lens.max()),
            max_seq_len=int(inputs.seq_lens.max()),
            takes_key_starts=self._takes_key_starts,
        )

    def for_graph(self, buffers: DecodeBuffers, shape: DecodeShape) -> GraphAttention:
        """Returns the attention of a shape: its lengths are read from the buffers."""
        return _FlashDecodes(self._cache, buffers, shape, self._takes_key_starts)


@dataclass(frozen=True, slots=True)
class _FlashDecodes:
    cache: PagedKVCache
    buffers: DecodeBuffers
    shape: DecodeShape
    takes_key_starts: bool

    def plan(self, decodes: PaddedDecodes) -> None:
        """Has nothing to do: all of it is in the buffers."""

    def step(self) -> StepAttention:
        """Returns attention over the buffers, for sequences of any length."""
        num_seqs, query_len = self.shape.num_seqs, self.shape.query_len
        buffers = self.buffers
        starts = torch.arange(num_seqs + 1, dtype=torch.int32, device=buffers.device) * query_len
        return _FlashStep(
            cache=self.cache,
            slot_mapping=buffers.slot_mapping[:, : self.shape.num_tokens],
            query_starts=starts,
            seq_lens=buffers.seq_lens[:num_seqs],
            block_tables=buffers.block_tables[:, :num_seqs],
            max_query_len=query_len,
            max_seq_len=buffers.block_tables.shape[2] * self.cache.block_size,
            takes_key_starts=self.takes_key_starts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlashStep:
    """What the kernel reads, in int32: block tables are `[num_groups, num_seqs, most blocks]`."""

    cache: PagedKVCache
    slot_mapping: torch.Tensor
    query_starts: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    max_query_len: int
    max_seq_len: int
    takes_key_starts: bool

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        """Returns a layer's output (see `StepAttention`)."""
        from torch.nn.attention.varlen import AuxRequest, varlen_attn

        group = self.cache.group_of[call.layer]
        window = self.cache.groups[group].sliding_window
        attended = varlen_attn(
            query,
            *self.cache.keys_and_values(call.layer),
            self.query_starts,
            self._key_starts(),
            self.max_query_len,
            self.max_seq_len,
            scale=call.scaling,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=True,
            seqused_k=self.seq_lens,
            block_table=self.block_tables[group],
            return_aux=None if call.sinks is None else AuxRequest(lse=True),
        )
        if call.sinks is None:
            assert isinstance(attended, torch.Tensor)
            return attended
        output, log_sums = attended
        return with_sinks(output, log_sums.T, call.sinks)  # made [num_heads, num_tokens]

    def _key_starts(self) -> torch.Tensor | None:
        """Returns where each sequence's keys would begin side by side; one generation asks."""
        if not self.takes_key_starts:
            return None
        starts = torch.zeros_like(self.query_starts)
        torch.cumsum(self.seq_lens, 0, dtype=torch.int32, out=starts[1:])
        return starts
