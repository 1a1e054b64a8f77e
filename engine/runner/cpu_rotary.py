"""Sines and cosines of positions, looked up instead of computed in each step.

Only for rotary embeddings that depend on nothing but the position: those that stretch with the
sequence, or differ from layer to layer, compute theirs as ever.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Rotation = tuple[torch.Tensor, torch.Tensor]

MIN_POSITIONS = 1024
"""The table begins so long, and doubles when a position lies behind it."""


def tabulate_rotations(module: nn.Module) -> int:
    """Lets rotary embeddings look their rotations up; returns how many."""
    num_tabulated = 0
    for rotary in module.modules():
        if type(rotary).__name__.endswith("RotaryEmbedding") and _is_plain(rotary):
            rotary.forward = _Table(rotary.forward)
            num_tabulated += 1
    return num_tabulated


def _is_plain(rotary: nn.Module) -> bool:
    names = list(inspect.signature(rotary.forward).parameters)
    return getattr(rotary, "rope_type", None) == "default" and names == ["x", "position_ids"]


class _Table:
    """Rotations by position, as the module computed them; `[1, positions, dim]` each."""

    def __init__(self, compute: Callable[[Any, Any], Rotation]) -> None:
        self._compute = compute
        self._rows: Rotation | None = None

    def __call__(self, x: torch.Tensor, position_ids: torch.Tensor) -> Rotation:
        """Returns cosines and sines `[1, num_tokens, dim]`, in the dtype of `x`."""
        wanted = int(position_ids.max()) + 1
        rows = self._rows
        if rows is None or len(rows[0]) < wanted or rows[0].dtype != x.dtype:
            rows = self._rows = self._made(x, wanted)
        cos, sin = rows
        places = position_ids.view(-1)
        return cos.index_select(0, places)[None], sin.index_select(0, places)[None]

    def _made(self, x: torch.Tensor, wanted: int) -> Rotation:
        size = MIN_POSITIONS
        while size < wanted:
            size *= 2
        cos, sin = self._compute(x, torch.arange(size)[None])
        return cos[0], sin[0]
