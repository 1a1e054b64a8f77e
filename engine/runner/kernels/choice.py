"""Which attention kernel a model gets.

One that is asked for by name is used, or an error says why not. Else, on CUDA, the first in order
that can do what the model wants and passes its trial. FlexAttention waits to be asked for: it
compiles while it serves (docs/decisions/0033-attention-on-cuda.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import assert_never

import torch

from engine.compilation import AttentionBackendName
from engine.config_error import ConfigError
from engine.runner.attention_backend import GatherBackend, MakeBackend
from engine.runner.attention_needs import LayerNeeds
from engine.runner.kernels import flash_kernel, flashinfer_kernel, flex_kernel, trial
from engine.runner.kv_tensors import KVShape

UNASKED: tuple[AttentionBackendName, ...] = ("FLASHINFER", "FLASH_ATTN")
"""Kernels that are tried in this order on CUDA where none is named; after them, gathering."""


class AttentionBackendError(ConfigError):
    """The attention kernel that was asked for cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNeeds:
    """What a kernel has to serve.

    Attributes:
        layers: what each layer wants.
        shape: of keys and values.
        block_size: tokens of a KV block.
        device: where the model is.
    """

    layers: tuple[LayerNeeds, ...]
    shape: KVShape
    block_size: int
    device: torch.device


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBackend:
    """What makes the kernel for a cache, and why those that come before it were passed over."""

    name: AttentionBackendName
    make: MakeBackend
    passed_over: dict[AttentionBackendName, str] = field(default_factory=dict)


def choose_backend(needs: ModelNeeds, asked: AttentionBackendName | None = None) -> ChosenBackend:
    """Returns the kernel that a model is served with.

    Args:
        needs: the model's.
        asked: the kernel that has to be used; None chooses.

    Raises:
        AttentionBackendError: the one that was asked for cannot be used.
    """
    if asked is not None:
        return _asked_for(asked, needs)
    passed_over: dict[AttentionBackendName, str] = {}
    if needs.device.type == "cuda":
        for name in UNASKED:
            reason = why_not(name, needs)
            if reason is None:
                return ChosenBackend(name=name, make=maker(name, needs), passed_over=passed_over)
            passed_over[name] = reason
    return ChosenBackend(name="TORCH_SDPA", make=GatherBackend, passed_over=passed_over)


def _asked_for(name: AttentionBackendName, needs: ModelNeeds) -> ChosenBackend:
    reason = why_not(name, needs)
    if reason is not None:
        raise AttentionBackendError(
            f"--attention-backend {name} cannot be used: {reason}; leave the flag out to have one "
            "chosen"
        )
    return ChosenBackend(name=name, make=maker(name, needs))


def why_not(name: AttentionBackendName, needs: ModelNeeds) -> str | None:
    """Returns why a kernel cannot serve a model here; None where it can."""
    if name == "TORCH_SDPA":
        return None
    reason = _absent(name, needs.device) or _complaint(name, needs)
    if reason is not None:
        return reason
    return trial.failing(
        maker(name, needs),
        needs.layers,
        needs.shape,
        block_size=needs.block_size,
        device=needs.device,
    )


def _absent(name: AttentionBackendName, device: torch.device) -> str | None:
    if name == "FLASHINFER" and find_spec("flashinfer") is None:
        return "its package is not installed: pip install 'stepscope[cuda]'"
    if device.type != "cuda":
        return f"it runs on CUDA, the model is on {device.type}"
    return None


def _complaint(name: AttentionBackendName, needs: ModelNeeds) -> str | None:
    layers, dtype, block_size = needs.layers, needs.shape.dtype, needs.block_size
    match name:
        case "FLASHINFER":
            return flashinfer_kernel.complaint(layers, dtype=dtype)
        case "FLASH_ATTN":
            any_page = flash_kernel.has_third_generation(needs.device)
            return flash_kernel.complaint(
                layers, dtype=dtype, block_size=block_size, any_page=any_page
            )
        case "FLEX_ATTENTION":
            return flex_kernel.complaint(layers, block_size=block_size)
        case "TORCH_SDPA":
            return None
        case _:
            assert_never(name)


def maker(name: AttentionBackendName, needs: ModelNeeds) -> MakeBackend:
    """Returns what makes a kernel for a cache."""
    match name:
        case "FLASHINFER":
            layer = needs.layers[0]
            return lambda cache: flashinfer_kernel.FlashInferBackend(cache, layer)
        case "FLASH_ATTN":
            newest = flash_kernel.has_third_generation(needs.device)
            return lambda cache: flash_kernel.FlashBackend(cache, third_generation=newest)
        case "FLEX_ATTENTION":
            return flex_kernel.FlexBackend
        case "TORCH_SDPA":
            return GatherBackend
        case _:
            assert_never(name)
