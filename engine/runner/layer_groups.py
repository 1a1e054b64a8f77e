"""Which layers share block tables, and which share memory.

Layers that see the same window keep the same tokens, so one block table serves them all. All groups
draw blocks from one pool, and a block is as large in each of them: so they are made equally long,
and the layers at one place share a tensor, of which each block belongs to one group at a time.

    18 layers, every sixth of them full        full   group 0    layers 5 11 17
                                               window group 1    layers 0  6 12
                                               window group 2    layers 1  7 13  ...
                                                                 tensor 0  1  2

Source: vLLM's hybrid KV cache manager (docs/design/hybrid_kv_cache_manager.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import KVGroupConfig

MAX_PADDING_RATIO = 1.5
"""Kinds of layers whose numbers differ by less than this make one group each, padded."""


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers with one block table. `sliding_window` counts the query's own token; None sees all."""

    layers: tuple[int, ...]
    sliding_window: int | None = None

    def config(self, block_size: int) -> KVGroupConfig:
        """Returns what the scheduler has to know of it."""
        if self.sliding_window is None:
            return KVGroupConfig("full", block_size)
        return KVGroupConfig("sliding_window", block_size, self.sliding_window)


def group_layers(windows: Sequence[int | None]) -> tuple[LayerGroup, ...]:
    """Returns the groups of a model's layers, those that see everything first.

    Args:
        windows: `[num_layers]`, how many tokens each layer sees; None is all.
    """
    kinds: dict[int | None, list[int]] = {}
    for layer, window in sorted(enumerate(windows), key=lambda each: each[1] is not None):
        kinds.setdefault(window, []).append(layer)
    sizes = [len(layers) for layers in kinds.values()]
    is_even = max(sizes) < MAX_PADDING_RATIO * min(sizes)
    size = max(sizes) if is_even else min(sizes)
    groups = []
    for window, layers in kinds.items():
        count = -(-len(layers) // size)
        groups += [LayerGroup(tuple(layers[i::count]), window) for i in range(count)]
    return tuple(groups)
