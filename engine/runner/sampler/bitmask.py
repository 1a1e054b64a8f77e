"""Applies grammars' bits to logits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


def apply_bitmask(logits: torch.Tensor, words: npt.NDArray[np.int32]) -> None:
    """Sets to -inf what a grammar does not let through.

    Args:
        logits: `[num_rows, vocab_size]`; written to.
        words: `[num_rows, ceil(vocab_size / 32)]`; a row of ones lets all through.
    """
    from xgrammar import apply_token_bitmask_inplace  # loaded once a grammar is there

    constrained = np.flatnonzero((words != -1).any(axis=1)).tolist()
    if constrained:
        bits = torch.from_numpy(words).to(logits.device)
        apply_token_bitmask_inplace(logits, bits, vocab_size=logits.shape[1], indices=constrained)
