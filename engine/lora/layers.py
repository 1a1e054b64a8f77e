"""Adapters on the device, added to the model's own linear layers.

A layer that can be adapted keeps its place, its weights and the way it multiplies them, and becomes
an `AdaptedLinear` (or another class of that kind). It holds the adapters of all slots side by side:

    down  [num_slots * max_rank, in_features]     slot s has the rows from s * max_rank on,
    up    [num_slots * max_rank, out_features]    behind its rank they are zero

What a batch adds is two small matrix products, in one of two ways. A few tokens of several adapters
go through the rows of all of them at once, and what a token has no business with is set to 0 in
between (`masked`): the number of operations does not depend on how many adapters there are. Many
tokens are split by adapter (`split`), so that none is multiplied by the rows of others.

A captured graph takes the masked way over all slots, with slots of tokens as its input
(`static_mapping`): which adapter lies where changes neither addresses nor shapes.

Without an adapter in the batch a layer looks at one attribute and does what it did before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from engine.lora.reading import Adaptable, LayerShape, LoadedAdapter
from engine.runner.cpu_linear import PackedLinear
from engine.runner.to_device import to_device

MAX_MASKED = 512
"""Tokens times slots that go through in one piece. Measured on CPU, with a hidden size of 256: at
twice as much the two ways cost the same."""

NO_ADAPTER = -1
"""The slot of a token without an adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tokens that go through some slots' rows together.

    Attributes:
        rows: of the stacked weights.
        slots: bits of the slots that they belong to; None where every layer has to take part.
        tokens: which; None is all.
        mask: `[tokens, rows]`, true where a row is of another adapter than the token's.
    """

    rows: slice
    slots: int | None
    tokens: slice | torch.Tensor | None = None
    mask: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterMapping:
    """Which adapters the tokens of a forward pass have. `num_tokens` is all of them."""

    num_tokens: int
    parts: tuple[Part, ...]


@dataclass(slots=True, eq=False)
class Active:
    """What the model's layers look at: the mapping of the pass that runs; None without adapters."""

    mapping: AdapterMapping | None = None


@dataclass(slots=True, eq=False)
class StackedAdapters:
    """One layer's adapters, in all slots."""

    active: Active
    down: torch.Tensor
    up: torch.Tensor
    max_rank: int
    slots: int = 0
    """Bits of the slots whose adapter has something for this layer."""

    def place(self, slot: int, adapter: LoadedAdapter, name: str) -> None:
        """Puts an adapter's weights for this layer, if it has any, where another's were."""
        rows = slice(slot * self.max_rank, (slot + 1) * self.max_rank)
        pair = adapter.pairs.get(name)
        if self.slots >> slot & 1:
            self.down[rows] = 0
            self.up[rows] = 0
        self.slots &= ~(1 << slot)
        if pair is not None:
            self.down[rows][: len(pair.down)] = pair.down
            self.up[rows][: len(pair.up)] = pair.up
            self.slots |= 1 << slot

    def add_to(self, output: torch.Tensor, given: torch.Tensor, mapping: AdapterMapping) -> None:
        """Adds what the tokens' adapters make of a layer's input to its output, in place."""
        given, output = given.flatten(0, -2), output.flatten(0, -2)
        if len(given) != mapping.num_tokens:
            raise RuntimeError(
                f"a layer with adapters saw {len(given)} tokens of {mapping.num_tokens}"
            )
        for part in mapping.parts:
            if part.slots is None or part.slots & self.slots:
                self._add_part(output, given, part)

    def _add_part(self, output: torch.Tensor, given: torch.Tensor, part: Part) -> None:
        tokens, up = part.tokens, self.up[part.rows]
        of_part = given if tokens is None else given[tokens]
        low = nn.functional.linear(of_part, self.down[part.rows])
        if part.mask is not None:
            low.masked_fill_(part.mask, 0)  # a product with 0 would keep an infinity
        if isinstance(tokens, torch.Tensor):
            output.index_add_(0, tokens, low @ up)
        else:
            (output if tokens is None else output[tokens]).addmm_(low, up)


class _WithAdapters(nn.Module):
    """What a layer with adapters does beside what it did before."""

    adapters: StackedAdapters

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Returns the layer's output, with what adapters add."""
        output: torch.Tensor = super().forward(given)
        mapping = self.adapters.active.mapping
        if mapping is not None:
            self.adapters.add_to(output, given, mapping)
        return output


class AdaptedLinear(_WithAdapters, nn.Linear):
    """A linear layer with adapters."""


class AdaptedPackedLinear(_WithAdapters, PackedLinear):
    """A linear layer whose weights are packed for the CPU, with adapters."""


class AdaptedConv1D(_WithAdapters, Conv1D):  # type: ignore[misc]
    """GPT-2's linear layer, which keeps its weights transposed, with adapters."""


_ADAPTED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: AdaptedLinear,
    PackedLinear: AdaptedPackedLinear,
    Conv1D: AdaptedConv1D,
}


@dataclass(slots=True, eq=False)
class LoRALayers:
    """A model's adapted layers, by name."""

    num_slots: int
    max_rank: int
    output_layer: str | None
    active: Active = field(default_factory=Active)
    layers: dict[str, StackedAdapters] = field(default_factory=dict)
    _ranks: list[int] = field(init=False)
    """By slot, of the adapter in it."""

    def __post_init__(self) -> None:
        self._ranks = [0] * self.num_slots

    @property
    def num_bytes(self) -> int:
        """Memory of all slots. On CPU it is taken as they are used."""
        return sum(layer.down.nbytes + layer.up.nbytes for layer in self.layers.values())

    @property
    def adaptable(self) -> Adaptable:
        """What an adapter for this model may look like."""
        return Adaptable(
            layers={
                name: LayerShape(in_features=layer.down.shape[1], out_features=layer.up.shape[1])
                for name, layer in self.layers.items()
            },
            output_layer=self.output_layer,
            max_lora_rank=self.max_rank,
            dtype=next(iter(self.layers.values())).down.dtype,
        )

    @torch.no_grad()
    def place(self, slot: int, adapter: LoadedAdapter) -> None:
        """Puts an adapter into a slot, in the place of what was there."""
        self._ranks[slot] = adapter.rank
        for name, layer in self.layers.items():
            layer.place(slot, adapter, name)

    def mapping(self, slots: npt.NDArray[np.int64]) -> AdapterMapping | None:
        """Returns the mapping of a pass over tokens of these slots; None without an adapter.

        Args:
            slots: `[num_tokens]`, `NO_ADAPTER` for tokens without one.
        """
        present = [int(slot) for slot in np.unique(slots) if slot != NO_ADAPTER]
        if not present:
            return None
        width = present[-1] - present[0] + 1
        if slots.min() == slots.max():
            parts = [self._whole(present[0])]
        elif width <= 2 * len(present) and len(slots) * width <= MAX_MASKED:
            parts = [self._masked(slots, present)]
        else:
            parts = [self._split(slots, slot) for slot in present]
        return AdapterMapping(num_tokens=len(slots), parts=tuple(parts))

    def static_mapping(self, slots: torch.Tensor) -> AdapterMapping:
        """Returns a mapping that a graph can capture: it reads `slots` anew at each replay.

        Make it inside the capture, and only once every adapter can be placed at any time.

        Args:
            slots: `[num_tokens]` on the device, `NO_ADAPTER` for tokens without one and padding.
        """
        rows = torch.arange(self.num_slots * self.max_rank, device=slots.device)
        mask = slots[:, None] != (rows // self.max_rank)[None]
        part = Part(rows=slice(0, len(rows)), slots=None, mask=mask)
        return AdapterMapping(num_tokens=len(slots), parts=(part,))

    def _rows(self, first: int, last: int) -> slice:
        return slice(first * self.max_rank, last * self.max_rank + self._ranks[last])

    def _whole(self, slot: int) -> Part:
        return Part(rows=self._rows(slot, slot), slots=1 << slot)

    def _masked(self, slots: npt.NDArray[np.int64], present: list[int]) -> Part:
        rows = self._rows(present[0], present[-1])
        mask = slots[:, None] != (np.arange(rows.start, rows.stop) // self.max_rank)[None]
        return Part(
            rows=rows,
            slots=sum(1 << slot for slot in present),
            mask=to_device(mask, self._device),
        )

    def _split(self, slots: npt.NDArray[np.int64], slot: int) -> Part:
        tokens = np.flatnonzero(slots == slot)
        first, end = int(tokens[0]), int(tokens[-1]) + 1
        is_run = end - first == len(tokens)
        return Part(
            rows=self._rows(slot, slot),
            slots=1 << slot,
            tokens=slice(first, end) if is_run else to_device(tokens, self._device),
        )

    @property
    def _device(self) -> torch.device:
        return next(iter(self.layers.values())).down.device


def adapt_layers(module: nn.Module, *, max_loras: int, max_lora_rank: int) -> LoRALayers:
    """Makes every linear layer of a model, but that of its logits, one with adapters.

    Raises:
        AdapterError: it has no such layer.
    """
    output = module.get_output_embeddings()  # type: ignore[operator]
    names = {id(layer): name for name, layer in module.named_modules()}
    adapted = LoRALayers(
        num_slots=max_loras, max_rank=max_lora_rank, output_layer=names.get(id(output))
    )
    for name, layer in _adaptable_layers(module, output):
        layer.__class__ = _ADAPTED[type(layer)]
        layer.adapters = adapted.layers[name] = _stack(layer, adapted)  # type: ignore[assignment]
    return adapted


def _adaptable_layers(module: nn.Module, output: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields the layers that all tokens of a pass go through: not those of single experts."""
    for name, layer in list(module.named_modules()):
        if type(layer) in _ADAPTED and layer is not output and ".experts." not in name:
            yield name, layer


def _stack(layer: nn.Module, adapted: LoRALayers) -> StackedAdapters:
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    out_features, in_features = weight.T.shape if isinstance(layer, Conv1D) else weight.shape
    num_rows = adapted.num_slots * adapted.max_rank

    def zeros(width: int) -> torch.Tensor:
        return torch.zeros(num_rows, width, dtype=weight.dtype, device=weight.device)

    return StackedAdapters(
        adapted.active, zeros(in_features), zeros(out_features), adapted.max_rank
    )
