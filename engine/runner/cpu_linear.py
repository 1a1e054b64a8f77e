"""A model's linear layers as a CPU multiplies them best: weights packed, one product an input.

oneDNN lays weights out for its kernels; torch has it do so in each call, here it is done once. And
layers that read the same input (query, key and value; gate and up) are multiplied together. That
costs the memory of the packed weights. The layers keep their own, which everybody else goes on to
see, and are packed when they are first asked, so what changes weights has to do it before.

A layer may get LoRA adapters afterwards: what they add is added to its output, in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names, in `transformers`, of layers that read the same input."""

PACKED_FOR_TOKENS = 64
"""The layout is made for so many tokens; fewer and more are multiplied well with it, too."""


class PackedLinear(nn.Linear):
    """A linear layer whose product is computed by `product`, as the output at `place` of it."""

    product: Product
    place: int

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's name
        """Returns the layer's output."""
        if input.dtype is torch.float32 and input.shape[-2] == 1:
            return super().forward(input)  # MKL multiplies a vector faster
        return self.product.output(self.place, input)


class Product:
    """The product of an input and the weights of the layers that read it.

    It is computed when one of the layers asks, and kept until the others have.

    Invariants:
        the layers are asked for the same input (the same object, which nobody writes to) before
        the next one comes; else the product is computed again.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self._layers = layers
        self._sizes = [layer.out_features for layer in layers]
        self._packed: torch.Tensor | None = None
        self._bias: torch.Tensor | None = None
        self._input: torch.Tensor | None = None
        self._left: dict[int, torch.Tensor] = {}

    def output(self, place: int, tokens: torch.Tensor) -> torch.Tensor:
        """Returns a layer's output; of several layers it is a view with longer rows."""
        if self._packed is None:
            self._pack()
        if len(self._sizes) == 1:
            return self._multiply(tokens)
        if tokens is not self._input or place not in self._left:
            outputs = torch.split_with_sizes(self._multiply(tokens), self._sizes, dim=-1)
            self._input, self._left = tokens, dict(enumerate(outputs))
        output = self._left.pop(place)
        if not self._left:
            self._input = None
        return output

    def _multiply(self, tokens: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(
            tokens, self._packed, self._bias, "none", [], ""
        )
        return output

    def _pack(self) -> None:
        weights = torch.cat([layer.weight.detach() for layer in self._layers])
        self._packed = torch.ops.mkldnn._reorder_linear_weight.default(weights, PACKED_FOR_TOKENS)
        if self._layers[0].bias is not None:
            self._bias = torch.cat([layer.bias.detach() for layer in self._layers])


def pack_linear_layers(module: nn.Module, dtype: torch.dtype) -> None:
    """Has a model's plain linear layers multiplied by packed weights, where oneDNN can do that."""
    if not _can_pack(dtype):
        return
    for layers in _same_input(module):
        _share(layers)
    for layer in list(module.modules()):
        if type(layer) is nn.Linear:
            _share([layer])


def _can_pack(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def _same_input(module: nn.Module) -> Iterator[list[nn.Linear]]:
    """Yields the plain linear layers, alike but for their outputs, that have the same input."""
    for parent in list(module.modules()):
        for names in SAME_INPUT:
            layers = [getattr(parent, name, None) for name in names]
            plain = [layer for layer in layers if type(layer) is nn.Linear]
            kinds = {(layer.in_features, layer.bias is None) for layer in plain}
            if len(plain) == len(names) and len(kinds) == 1:
                yield plain


def _share(layers: Sequence[nn.Linear]) -> None:
    product = Product(layers)
    for place, layer in enumerate(layers):
        layer.__class__ = PackedLinear
        assert isinstance(layer, PackedLinear)
        layer.product, layer.place = product, place
