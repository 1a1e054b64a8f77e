"""Attention sinks, for kernels that do not know them but tell the sum of their weights."""

from __future__ import annotations

import torch


def with_sinks(output: torch.Tensor, log_sums: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """Returns attention's output as if each softmax had counted one more score, without a value.

    That score only makes the sum of the weights larger: by `1 + exp(sink - log_sum)`.

    Args:
        output: `[num_tokens, num_heads, value_dim]`.
        log_sums: `[num_tokens, num_heads]`, natural logarithm of the sum of exponentiated scores.
        sinks: `[num_heads]`.
    """
    share = torch.sigmoid(log_sums.float() - sinks.float())
    return (output * share[..., None]).to(output.dtype)
