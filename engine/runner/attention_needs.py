"""What a model's layers want of attention, found out by running one token through them.

Configurations spell this in many ways, and some do not tell it at all; what a layer hands to its
attention function does. A model whose wishes cannot be met is refused here, once its weights are
there and before the first request.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from transformers import AttentionInterface

from engine.runner.model_error import ModelError

PROBE_NAME = "stepscope_probe"

KNOWN_TENSORS = {"s_aux", "position_ids", "cache_position"}
"""Tensors that attention may be handed besides the states and the mask; any other is a wish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNeeds:
    """One layer's heads, keys and values, and what its scores go through.

    Attributes:
        sliding_window: how far it sees, its own token counted; None is back to the beginning.
        scaling: of the scores; None is `key_dim ** -0.5`.
        softcap: the scores' bound; None is none.
        has_sinks: whether each softmax counts a score without a value.
    """

    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    sliding_window: int | None = None
    scaling: float | None = None
    softcap: float | None = None
    has_sinks: bool = False


def ask_layers(module: Any, config: Any) -> tuple[LayerNeeds, ...]:
    """Returns what each layer needs, in their order.

    Args:
        module: a loaded `transformers` model; its attention implementation is set, and set back.
        config: its text configuration.

    Raises:
        ModelError: it cannot be served with paged attention.
    """
    _check_signature(module, config)
    AttentionInterface.register(PROBE_NAME, _note)
    before = module.config._attn_implementation
    module.set_attn_implementation(PROBE_NAME)
    notes: list[_Note] = []
    try:
        _run_one_token(module, notes)
    finally:
        module.set_attn_implementation(before)
    _check_complete(notes, config)
    layers = tuple(_needs(note, config) for note in sorted(notes, key=lambda note: note.layer))
    shapes = {(each.num_kv_heads, each.key_dim, each.value_dim) for each in layers}
    if len(shapes) > 1:
        raise _refusal(config, f"layers whose KV shapes differ ({len(shapes)} of them)")
    return layers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    layer: int
    num_heads: int
    scaling: float | None
    softcap: float | None
    has_sinks: bool
    num_kv_heads: int
    key_dim: int
    value_dim: int
    sliding_window: int | None
    wish: str | None


def _note(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention_notes: list[_Note] | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Stands in for attention: notes what it was asked, and answers with nothing."""
    if attention_notes is not None:
        unknown = sorted(
            name
            for name, given in others.items()
            if isinstance(given, torch.Tensor) and name not in KNOWN_TENSORS
        )
        wish = None
        if attention_mask is not None:
            wish = "a mask of its own"
        elif unknown:
            wish = ", ".join(unknown)
        elif is_causal is False or getattr(module, "is_causal", True) is False:
            wish = "tokens that see later ones"
        attention_notes.append(
            _Note(
                layer=int(getattr(module, "layer_idx", -1)),
                num_heads=query.shape[1],
                scaling=scaling,
                softcap=softcap,
                has_sinks=others.get("s_aux") is not None,
                num_kv_heads=key.shape[1],
                key_dim=key.shape[3],
                value_dim=value.shape[3],
                sliding_window=sliding_window,
                wish=wish,
            )
        )
    _, num_heads, num_tokens, _ = query.shape
    return value.new_zeros(1, num_tokens, num_heads, value.shape[3]), None


@torch.inference_mode()
def _run_one_token(module: Any, notes: list[_Note]) -> None:
    device = next(module.parameters()).device
    token = torch.zeros(1, 1, dtype=torch.int64, device=device)
    module(
        input_ids=token,
        position_ids=token,
        use_cache=False,
        logits_to_keep=1,
        attention_notes=notes,
    )


def _check_signature(module: Any, config: Any) -> None:
    lacking = {"position_ids", "logits_to_keep"} - set(signature(module.forward).parameters)
    if lacking:
        raise _refusal(config, f"a forward pass without {' and '.join(sorted(lacking))}")


def _check_complete(notes: list[_Note], config: Any) -> None:
    """Raises unless each layer has asked once, and nothing that cannot be had."""
    wish = next((note.wish for note in notes if note.wish is not None), None)
    if wish is not None:
        raise _refusal(config, f"attention that wants {wish}")
    num_layers = int(config.num_hidden_layers)
    if sorted(note.layer for note in notes) != list(range(num_layers)):
        asked = len({note.layer for note in notes})
        raise _refusal(config, f"{num_layers} layers, of which {asked} ask for attention")


def _needs(note: _Note, config: Any) -> LayerNeeds:
    return LayerNeeds(
        num_heads=note.num_heads,
        num_kv_heads=note.num_kv_heads,
        key_dim=note.key_dim,
        value_dim=note.value_dim,
        sliding_window=_window(note, config),
        scaling=note.scaling,
        softcap=note.softcap,
        has_sinks=note.has_sinks,
    )


def _window(note: _Note, config: Any) -> int | None:
    """Returns a layer's window, on which its code and its configuration must agree.

    Some models tell attention; others only put it into a mask, which is never made here: then the
    configuration is all there is.
    """
    asked = note.sliding_window
    configured: int | None = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        told = configured if kinds[note.layer] == "sliding_attention" else None
        if asked is not None and asked != told:
            raise _refusal(config, f"layer {note.layer} asking for a window of {asked}")
        return told
    if configured is not None and asked is None:
        raise _refusal(config, f"a sliding window ({configured}) that its layers do not ask for")
    return asked


def _refusal(config: Any, what: str) -> ModelError:
    return ModelError(
        f"model type {config.model_type!r} has {what}: only decoders with full or sliding "
        "attention in every layer can run; use another model"
    )
