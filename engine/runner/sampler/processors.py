"""What changes logits for greedy rows too: ends that are held back, and biases."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.runner.sampler.rows import Row


def hold_back_ends(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """Sets the ends of rows that have not reached `min_tokens` to -inf."""
    early = [row for row in rows if row.output < row.wishes.sampling.min_tokens]
    ends = [end for row in early for end in row.wishes.ends]
    if not ends:
        return
    indices = [row.index for row in early for _ in row.wishes.ends]
    device = logits.device
    logits[torch.tensor(indices, device=device), torch.tensor(ends, device=device)] = float("-inf")


def add_biases(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """Adds the `logit_bias` of each row."""
    biased = [(row.index, row.wishes.bias) for row in rows if row.wishes.bias is not None]
    if not biased:
        return
    indices = torch.cat([torch.full_like(ids, index) for index, (ids, _) in biased])
    token_ids = torch.cat([ids for _, (ids, _) in biased]).to(logits.device)
    values = torch.cat([values for _, (_, values) in biased]).to(logits.device)
    logits[indices.to(logits.device), token_ids] += values
