"""Attention over the paged KV cache, in the place of a `transformers` model's own.

The model runs on flat tokens (batch 1). In each layer its attention calls `paged_attention`, which
stores the new keys and values in the cache and has the step's attention attend, causally behind the
tokens computed before. Which kernel that is, and what a step's layers share, comes in through the
model's keyword arguments (`StepAttention`).

Source: `transformers`, AttentionInterface (docs/source/en/attention_interface.md).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface

from engine.runner.layer_call import LayerCall, StepAttention

ATTENTION_NAME = "stepscope_paged"
"""The name under which models find `paged_attention`."""


def register() -> None:
    """Makes `paged_attention` known to `transformers`; doing so again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention_metadata: StepAttention,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Returns attention's output `[1, num_tokens, num_heads, value_dim]`, and no weights.

    What a layer may ask for has been looked at when its model was loaded (`attention_needs`), its
    sliding window among it.

    Args:
        module: the layer; `module.layer_idx` is its place.
        query: `[1, num_heads, num_tokens, key_dim]`, all sequences' tokens side by side.
        key: `[1, num_kv_heads, num_tokens, key_dim]`, of the same tokens.
        value: `[1, num_kv_heads, num_tokens, value_dim]`.
        attention_mask: is None; the metadata says who sees what.
        attention_metadata: the step's.
        scaling: of the scores; None is `key_dim ** -0.5`.
        softcap: the scores' bound; None is none.
        s_aux: `[num_heads]`, attention sinks; None is none.
    """
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    cache = attention_metadata.cache
    slots = attention_metadata.slot_mapping[cache.group_of[layer]]
    cache.write(layer, slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    call = LayerCall(layer, scaling, softcap, s_aux)
    return attention_metadata.attend(call, query[0].transpose(0, 1))[None], None
