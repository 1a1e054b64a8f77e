"""What changes logits for greedy rows too: ends that are held back, and biases.

`logits[i]` is that of `rows[i]`, and is written to.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.runner.sampler.rows import Row


def hold_back_ends(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """Sets the ends of rows that have not reached `min_tokens` to -inf."""
    early = [
        (place, end)
        for place, row in enumerate(rows)
        if row.output < row.wishes.sampling.min_tokens
        for end in row.wishes.ends
    ]
    if not early:
        return
    places, ends = zip(*early, strict=True)
    device = logits.device
    logits[torch.tensor(places, device=device), torch.tensor(ends, device=device)] = float("-inf")


def add_biases(logits: torch.Tensor, rows: Sequence[Row]) -> None:
    """Adds the `logit_bias` of each row."""
    biased = [(i, row.wishes.bias) for i, row in enumerate(rows) if row.wishes.bias is not None]
    if not biased:
        return
    places = torch.cat([torch.full_like(ids, place) for place, (ids, _) in biased])
    token_ids = torch.cat([ids for _, (ids, _) in biased]).to(logits.device)
    values = torch.cat([values for _, (_, values) in biased]).to(logits.device)
    logits[places.to(logits.device), token_ids] += values
