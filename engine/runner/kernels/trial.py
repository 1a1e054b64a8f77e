"""A kernel attends once to something small before it is trusted, and is compared.

Whether a kernel works depends on device, driver, compiler and versions. One that fails, or whose
output is not attention's, is found out here, and not by a user's text.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from engine.runner.attention_backend import AttentionBackend, GatherBackend
from engine.runner.attention_needs import LayerNeeds
from engine.runner.batch_inputs import BatchInputs
from engine.runner.kv_tensors import KVShape, PagedKVCache
from engine.runner.layer_call import LayerCall

SEQUENCES = ((7, 40), (1, 70), (1, 5))
"""Tokens in the step, and in all, of each sequence that a kernel is tried with: in batch order
decodes come first."""

TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference between two ways to add up the same numbers of order 1."""


@torch.inference_mode()
def failing(
    make: Callable[[PagedKVCache], AttentionBackend],
    layers: tuple[LayerNeeds, ...],
    shape: KVShape,
    *,
    block_size: int,
    device: torch.device,
) -> str | None:
    """Returns what goes wrong when a kernel attends; None where its output is right.

    Args:
        make: makes the kernel for a cache.
        layers: what each layer of the model wants.
        shape: of the model's keys and values.
        block_size: tokens of a KV block.
        device: where the model is.
    """
    try:
        difference = _largest_difference(make, layers, shape, block_size, device)
    except Exception as error:
        return f"it failed when tried: {type(error).__name__}: {str(error)[:300]}"
    limit = TOLERANCE[shape.dtype]
    if not difference <= limit:  # a NaN is not
        return f"its output differed by {difference:.3g} when tried, at most {limit:g} is rounding"
    return None


def _largest_difference(
    make: Callable[[PagedKVCache], AttentionBackend],
    layers: tuple[LayerNeeds, ...],
    shape: KVShape,
    block_size: int,
    device: torch.device,
) -> float:
    generator = torch.Generator().manual_seed(0)
    inputs = _inputs(block_size, len(shape.groups))
    num_blocks = int(inputs.block_tables.max()) + 1
    cache = PagedKVCache.allocate(
        shape, num_blocks=num_blocks, block_size=block_size, device=device
    )
    for tensor in cache.layers:
        tensor.copy_(torch.randn(tensor.shape, generator=generator).to(tensor.dtype))
    tried, known = make(cache).step(inputs), GatherBackend(cache).step(inputs)
    differences = []
    for group in shape.groups:
        layer = group.layers[0]
        needs = layers[layer]
        size = (len(inputs.token_ids), needs.num_heads, needs.key_dim)
        query = torch.randn(size, generator=generator).to(device, shape.dtype)
        sinks = None
        if needs.has_sinks:
            sinks = torch.randn(needs.num_heads, generator=generator).to(device, shape.dtype)
        call = LayerCall(layer, needs.scaling, needs.softcap, sinks)
        difference = tried.attend(call, query).float() - known.attend(call, query).float()
        differences.append(difference.abs().max())
    return float(torch.stack(differences).max())


def _inputs(block_size: int, num_groups: int) -> BatchInputs:
    """Returns a step of a few sequences in blocks of their own, in disorder."""
    query_lens, seq_lens = np.array(sorted(SEQUENCES)).T
    num_blocks = -(-seq_lens // block_size)
    order = np.random.default_rng(0).permutation(np.arange(1, num_blocks.sum() + 1))
    tables = np.zeros((len(seq_lens), int(num_blocks.max())), np.int32)
    tables[np.arange(tables.shape[1]) < num_blocks[:, None]] = order
    starts = seq_lens - query_lens
    positions = np.concatenate([np.arange(*span) for span in zip(starts, seq_lens, strict=True)])
    rows = np.repeat(np.arange(len(seq_lens)), query_lens)
    slots = tables[rows, positions // block_size] * np.int64(block_size) + positions % block_size
    everyone = np.arange(len(seq_lens))
    return BatchInputs(
        request_ids=tuple(map(str, everyone)),
        rows=everyone,
        token_ids=np.zeros(len(positions), np.int64),
        positions=positions,
        slot_mapping=np.tile(slots, (num_groups, 1)),
        query_start=np.concatenate(([0], np.cumsum(query_lens))),
        seq_lens=seq_lens,
        block_tables=np.tile(tables, (num_groups, 1, 1)),
        sampling_seqs=everyone,
        num_drafts=np.zeros(len(seq_lens), np.int64),
    )
