"""What one layer asks of attention in one step, apart from who attends to what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.runner.kv_tensors import PagedKVCache


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One layer's wishes.

    Attributes:
        layer: its place in the model.
        scaling: of the scores; None is `key_dim ** -0.5`.
        softcap: the scores' bound, approached as tanh does; None is none.
        sinks: `[num_heads]`, a score that each softmax counts without a value; None is none.
    """

    layer: int
    scaling: float | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None


class StepAttention(Protocol):
    """A step's attention over the paged cache: what all its layers share, ready to be asked.

    Attributes:
        cache: where keys and values are.
        slot_mapping: `[num_kv_groups, num_tokens]`, where the step's own keys and values go.
    """

    @property
    def cache(self) -> PagedKVCache: ...

    @property
    def slot_mapping(self) -> torch.Tensor: ...

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        """Returns the output `[num_tokens, num_heads, value_dim]`, once the cache was written to.

        Args:
            call: the layer's wishes.
            query: `[num_tokens, num_heads, key_dim]`, all sequences' side by side.
        """
        ...
