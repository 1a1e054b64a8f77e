"""The likeliest token of each row, fast on CPU.

torch's `argmax` looks at one number after the other there, and at half-precision ones slower still:
with 262,144 tokens in bfloat16 that is 0.9 ms a row. Its `amax` is vectorized. So a long row is cut
into pieces: the largest number of each piece, the first piece that has the largest of them, and the
place within that piece.
"""

from __future__ import annotations

import torch

MIN_TOKENS = 4096
"""Shorter rows are looked through as they are."""

MAX_PIECE, MIN_PIECE = 512, 32


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """Returns `[num_rows]`, the first token with the largest logit of each row.

    Args:
        logits: `[num_rows, vocab_size]`.
    """
    vocab_size = logits.shape[1]
    piece = min(MAX_PIECE, vocab_size & -vocab_size)  # a power of two that divides it
    if logits.is_cuda or vocab_size < MIN_TOKENS or piece < MIN_PIECE:
        return logits.argmax(dim=-1)
    pieces = logits.reshape(len(logits), vocab_size // piece, piece)
    best = pieces.amax(dim=-1).argmax(dim=-1)
    within = pieces[torch.arange(len(logits)), best].argmax(dim=-1)
    return best * piece + within
