"""Attention of a padded batch over keys and values that lie side by side: the arithmetic alone.

Query heads that share a key head are folded into one, as more queries of it: so its keys are read
once, and the fused kernel is used. torch's own way with grouped heads leaves that kernel for a
single query: measured on CPU, that costs up to twice as much in float32, and 3 to 16 times as much
in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812

Part = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Some keys, their values, and their part of the mask."""

MAX_FOLDED_QUERIES = 16
"""Beyond so many queries a sequence folding brings nothing, and its mask grows."""


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    *,
    scaling: float | None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns the output `[size, queries, num_heads, value_dim]`.

    Args:
        query: `[size, queries, num_heads, key_dim]`.
        key: `[size, num_kv_heads, keys, key_dim]`.
        value: `[size, num_kv_heads, keys, value_dim]`.
        mask: `[size, 1, queries, keys]`, added to the scores.
        scaling: of the scores; None is `key_dim ** -0.5`.
        softcap: the scores' bound, approached as tanh does; None is none.
        sinks: `[num_heads]`, a score that each softmax counts without a value; None is none.
    """
    size, num_queries, num_heads, _ = query.shape
    num_kv_heads = key.shape[1]
    if softcap is not None or sinks is not None:
        expand = num_heads // num_kv_heads
        output = _attend_plainly(
            query.transpose(1, 2),
            key.repeat_interleave(expand, 1),
            value.repeat_interleave(expand, 1),
            mask,
            scaling=query.shape[3] ** -0.5 if scaling is None else scaling,
            softcap=softcap,
            sinks=sinks,
        )
        return output.transpose(1, 2)
    if num_heads == num_kv_heads or num_queries > MAX_FOLDED_QUERIES:
        output = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key,
            value,
            attn_mask=mask,
            scale=scaling,
            enable_gqa=num_heads != num_kv_heads,
        )
        return output.transpose(1, 2)
    folds = num_heads // num_kv_heads
    folded = query.view(size, num_queries, num_kv_heads, folds, -1).transpose(1, 2)
    output = F.scaled_dot_product_attention(
        folded.reshape(size, num_kv_heads, num_queries * folds, -1),
        key,
        value,
        attn_mask=_fold_mask(mask, folds),
        scale=scaling,
    )
    output = output.view(size, num_kv_heads, num_queries, folds, -1).transpose(1, 2)
    return output.reshape(size, num_queries, num_heads, -1)


def attend_in_parts(
    query: torch.Tensor, parts: Iterable[Part], *, scaling: float | None
) -> torch.Tensor:
    """Returns `attend`'s output for one query a sequence, over one part of its keys at a time.

    Each part is attended to alone, and the outputs are weighed by the sums of their exponentiated
    scores. Every query has to see a key of each part.

    Args:
        query: `[size, 1, num_heads, key_dim]`, on CPU.
        parts: key, value and mask, shaped and typed as `attend` takes them, with equal dims; a part
            is done with before the next one is asked for.

    Source: FlashAttention (arXiv:2205.14135), section 3.1.
    """
    size, _, num_heads, _ = query.shape
    outputs, log_sums = [], []
    for key, value, mask in parts:
        folds = num_heads // key.shape[1]
        output, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query.view(size, key.shape[1], folds, -1),
            key,
            value,
            attn_mask=_fold_mask(mask, folds),
            scale=scaling,
        )
        outputs.append(output)
        log_sums.append(log_sum)
    weights = torch.stack(log_sums).softmax(dim=0)[..., None]
    output = (torch.stack(outputs) * weights).sum(dim=0).to(query.dtype)
    return output.view(size, 1, num_heads, -1)


def _fold_mask(mask: torch.Tensor, folds: int) -> torch.Tensor:
    """Returns the mask with each query's row as often as heads were folded into it."""
    size, _, num_queries, num_keys = mask.shape
    repeated = mask[:, :, :, None].expand(-1, -1, -1, folds, -1)
    return repeated.reshape(size, 1, num_queries * folds, num_keys)


def _attend_plainly(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    *,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Returns the output `[size, num_heads, queries, value_dim]`, score by score."""
    scores = (query @ key.transpose(2, 3)) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores + mask
    if sinks is not None:
        sink = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sink), dim=3)
    weights = scores.softmax(dim=3, dtype=torch.float32).to(value.dtype)
    return weights[..., : key.shape[2]] @ value
