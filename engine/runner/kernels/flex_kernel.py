"""torch's FlexAttention over the paged cache: a mask in Python, compiled into a Triton kernel.

The cache of a layer is one long row of keys that all sequences share. A block mask names the blocks
of that row which a sequence sees, so that only those are read; within them, the mask compares a
key's place in its sequence with the query's.

Not captured in CUDA graphs: what it compiles depends on shapes, and it compiles again for new ones.

Source: torch, `torch.nn.attention.flex_attention`; FlexAttention (arXiv:2412.05496), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from engine.compilation import AttentionBackendName
from engine.runner.attention_backend import GraphAttention
from engine.runner.attention_needs import LayerNeeds
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_buffers import DecodeBuffers
from engine.runner.decode_shapes import DecodeShape
from engine.runner.grouping import Group, group_sequences
from engine.runner.kernels.paged_tables import first_seen_blocks
from engine.runner.kernels.sinks import with_sinks
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention
from engine.runner.to_device import to_device

QUERY_BLOCK = 128
"""Queries that share a row of the block mask."""

MAX_GROUP_TOKENS = 1 << 20
"""Keys that a group may see together: nothing is copied, so only the padding of tables counts."""

MIN_KEY_BLOCK = 16
"""Triton multiplies tiles of 16 keys or more."""

Attend = Callable[..., Any]


def complaint(layers: Sequence[LayerNeeds], *, block_size: int) -> str | None:
    """Returns what this kernel cannot do of what a model wants; None where it can do all.

    Args:
        layers: what each wants.
        block_size: tokens of a KV block.
    """
    if block_size < MIN_KEY_BLOCK or block_size & (block_size - 1):
        return f"blocks have {block_size} tokens: it takes powers of 2, from {MIN_KEY_BLOCK} on"
    if any(layer.key_dim < MIN_KEY_BLOCK for layer in layers):
        return f"a head has {layers[0].key_dim} dimensions: it takes {MIN_KEY_BLOCK} or more"
    return None


class FlexBackend:
    """FlexAttention over the paged cache.

    Args:
        compiled: whether into a kernel; without, it computes every score of every key there is.
    """

    name: AttentionBackendName = "FLEX_ATTENTION"

    def __init__(self, cache: PagedKVCache, *, compiled: bool = True) -> None:
        self._cache = cache
        self._attend: Attend = flex_attention
        if compiled:
            self._attend = torch.compile(flex_attention)
        self._options = {"BLOCK_N": min(64, cache.block_size)} if compiled else None

    def step(self, inputs: BatchInputs) -> StepAttention:
        """Returns the attention of a step."""
        cache = self._cache
        groups = [
            _masked_groups(inputs, tables, cache, kv_group.sliding_window)
            for kv_group, tables in zip(cache.groups, inputs.block_tables, strict=True)
        ]
        slots = to_device(inputs.slot_mapping, cache.layers[0].device)
        return _FlexStep(cache, slots, groups, self._attend, self._options)

    def for_graph(self, buffers: DecodeBuffers, shape: DecodeShape) -> GraphAttention | None:
        """Returns None: it is not captured."""
        return None


@dataclass(frozen=True, slots=True)
class _MaskedGroup:
    """Sequences that attend together.

    Attributes:
        size: sequences.
        queries: `[size * queries]`, which of the flat tokens they are, the last one repeated.
        real: `[num_real]`, which of these are there for the first time.
        mask: what each of them sees of the cache.
    """

    size: int
    queries: torch.Tensor
    real: torch.Tensor
    mask: BlockMask


@dataclass(frozen=True, slots=True)
class _FlexStep:
    cache: PagedKVCache
    slot_mapping: torch.Tensor
    groups: list[list[_MaskedGroup]]
    attend_with: Attend
    kernel_options: dict[str, Any] | None = field(default=None)

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        """Returns a layer's output (see `StepAttention`)."""
        key, value = (
            both.flatten(0, 1).transpose(0, 1)[None]
            for both in self.cache.keys_and_values(call.layer)
        )
        output = query.new_empty(*query.shape[:2], value.shape[3])
        for group in self.groups[self.cache.group_of[call.layer]]:
            own = query[group.queries].view(group.size, -1, *query.shape[1:]).transpose(1, 2)
            attended = self.attend_with(
                own,
                key,
                value,
                score_mod=_bound_of(call.softcap),
                block_mask=group.mask,
                scale=call.scaling,
                enable_gqa=True,
                kernel_options=self.kernel_options,
                return_aux=None if call.sinks is None else AuxRequest(lse=True),
            )
            flat = _flat(attended, call.sinks)
            output[group.queries[group.real]] = flat[group.real]
        return output


def _flat(attended: Any, sinks: torch.Tensor | None) -> torch.Tensor:
    """Returns a group's output `[size * queries, num_heads, value_dim]`, its sinks heeded."""
    if sinks is None:
        output: torch.Tensor = attended.transpose(1, 2).flatten(0, 1)
        return output
    output, aux = attended
    log_sums = aux.lse.transpose(1, 2).flatten(0, 1)
    return with_sinks(output.transpose(1, 2).flatten(0, 1), log_sums, sinks)


def _bound_of(softcap: float | None) -> Callable[..., torch.Tensor] | None:
    """Returns what bounds a score; None where nothing does."""
    if softcap is None:
        return None

    def bound(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return softcap * torch.tanh(score / softcap)

    return bound


def _masked_groups(
    inputs: BatchInputs, tables: npt.NDArray[np.int32], cache: PagedKVCache, window: int | None
) -> list[_MaskedGroup]:
    """Returns a KV group's sequences, those of similar length together, and what they see."""
    groups = group_sequences(
        inputs.query_lens,
        inputs.seq_lens,
        block_size=cache.block_size,
        max_group_tokens=MAX_GROUP_TOKENS,
        sliding_window=window,
    )
    return [_masked_group(group, tables[group.sequences], cache, window) for group in groups]


def _masked_group(
    group: Group, tables: npt.NDArray[np.int32], cache: PagedKVCache, window: int | None
) -> _MaskedGroup:
    device = cache.layers[0].device
    num_queries = int(group.query_lens.max())
    within = np.minimum(np.arange(num_queries), group.query_lens[:, None] - 1)
    real = np.flatnonzero(np.arange(num_queries) < group.query_lens[:, None])
    first = first_seen_blocks(
        group.query_lens, group.seq_lens, block_size=cache.block_size, sliding_window=window
    )
    end = -(-group.seq_lens // cache.block_size)
    places = np.arange(int(end.max()))
    tables = tables[:, : len(places)]
    seen = (places >= first[:, None]) & (places < end[:, None])
    return _MaskedGroup(
        size=len(group.sequences),
        queries=to_device((group.query_start[:, None] + within).reshape(-1), device),
        real=to_device(real, device),
        mask=_block_mask(
            positions=to_device((group.seq_lens - group.query_lens)[:, None] + within, device),
            places=_places_of_blocks(tables, seen, cache),
            counts=to_device((end - first).astype(np.int32), device),
            blocks=_seen_first(tables, seen, cache),
            block_size=cache.block_size,
            window=window,
        ),
    )


def _places_of_blocks(
    tables: npt.NDArray[np.int32], seen: npt.NDArray[np.bool_], cache: PagedKVCache
) -> torch.Tensor:
    """Returns `[size, num_blocks]`: a block's place in a sequence; -1 where it is not seen."""
    device, size = cache.layers[0].device, (len(tables), len(cache.layers[0]))
    sequence, place = np.nonzero(seen)
    places = torch.full(size, -1, dtype=torch.int32, device=device)
    block = to_device(tables[sequence, place].astype(np.int64), device)
    places[to_device(sequence, device), block] = to_device(place.astype(np.int32), device)
    return places


def _seen_first(
    tables: npt.NDArray[np.int32], seen: npt.NDArray[np.bool_], cache: PagedKVCache
) -> torch.Tensor:
    """Returns `[size, num_blocks]`: the blocks that are seen in front, anything behind them.

    The kernel asks for as many columns as the cache has blocks.
    """
    device, size = cache.layers[0].device, (len(tables), len(cache.layers[0]))
    order = np.argsort(~seen, axis=1, kind="stable")
    blocks = torch.zeros(size, dtype=torch.int32, device=device)
    blocks[:, : tables.shape[1]] = to_device(np.take_along_axis(tables, order, axis=1), device)
    return blocks


def _block_mask(
    *,
    positions: torch.Tensor,
    places: torch.Tensor,
    counts: torch.Tensor,
    blocks: torch.Tensor,
    block_size: int,
    window: int | None,
) -> BlockMask:
    """Returns what each query sees of the cache as one row of keys.

    Args:
        positions: `[size, queries]`, of each query in its sequence.
        places: `[size, num_blocks]`, of each block in a sequence; -1 where it is not seen.
        counts: `[size]`, blocks that a sequence sees.
        blocks: `[size, num_blocks]`, which they are, in front.
        block_size: tokens of a block.
        window: keys that a query sees; None is all.
    """

    def visible(
        b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor
    ) -> torch.Tensor:
        place = places[b, kv // block_size]
        key, query = place * block_size + kv % block_size, positions[b, q]
        seen = (place >= 0) & (key <= query)
        return seen if window is None else seen & (key > query - window)

    size, num_queries = positions.shape
    rows = -(-num_queries // QUERY_BLOCK)
    return BlockMask.from_kv_blocks(
        counts[:, None, None].expand(size, 1, rows).contiguous(),
        blocks[:, None, None].expand(size, 1, rows, -1).contiguous(),
        BLOCK_SIZE=(QUERY_BLOCK, block_size),
        mask_mod=visible,
        seq_lengths=(num_queries, places.shape[1] * block_size),
        compute_q_blocks=False,
    )
