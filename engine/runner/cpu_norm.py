"""A model's RMS norms as one operation each, where that gives what the model's own code gives.

Spelt out in torch, as `transformers` does it, a norm is half a dozen operations, each of which
costs a decode step more to launch than to run. Whether the fused one stands for a module is found
out by running both: families differ in what they do with the weight.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

Norm = Callable[[torch.Tensor], torch.Tensor]

NUM_PROBES = 4


def fuse_norms(module: nn.Module) -> int:
    """Lets RMS norms run fused where that gives the same, but for rounding; returns how many."""
    num_fused = 0
    for norm in module.modules():
        fused = _fused(norm) if type(norm).__name__.endswith("RMSNorm") else None
        if fused is not None:
            norm.forward = fused
            num_fused += 1
    return num_fused


def _fused(norm: nn.Module) -> Norm | None:
    """Returns the operation that stands for a norm; None where there is none."""
    weight = getattr(norm, "weight", None)
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not isinstance(eps, float):
        return None
    if len(inspect.signature(norm.forward).parameters) != 1:
        return None
    for make in (_plain, _offset):
        if _gives_the_same(norm, make(weight, eps), weight):
            return make(weight, eps)
    return None


def _plain(weight: torch.Tensor, eps: float) -> Norm:
    """Returns Llama's and most others'."""
    return lambda tokens: F.rms_norm(tokens, weight.shape, weight, eps)


def _offset(weight: torch.Tensor, eps: float) -> Norm:
    """Returns Gemma's: the weight is what is added to 1, in float32, which is done once."""
    scale: list[torch.Tensor] = []

    def norm(tokens: torch.Tensor) -> torch.Tensor:
        if not scale:
            scale.append(1.0 + weight.float())
        return F.rms_norm(tokens.float(), weight.shape, scale[0], eps).to(tokens.dtype)

    return norm


def _gives_the_same(norm: nn.Module, fused: Norm, weight: torch.Tensor) -> bool:
    """Whether two norms agree, up to the last places of the dtype, on a few random tokens."""
    generator = torch.Generator().manual_seed(0)
    size = (1, NUM_PROBES, len(weight))
    tokens = (3 * torch.randn(size, generator=generator)).to(weight.dtype)
    rounding = 2 * torch.finfo(weight.dtype).eps
    with torch.no_grad():
        wanted = norm(tokens)
        given = fused(tokens)
    return given.dtype == wanted.dtype and torch.allclose(given, wanted, rtol=rounding, atol=1e-6)
