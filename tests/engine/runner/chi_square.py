"""How well counts agree with a distribution (Pearson's chi-square)."""

from __future__ import annotations

import torch

MIN_EXPECTED = 5.0
"""Cells that are expected to hold less are taken together, as usual."""


def p_value(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    """Returns how likely counts at least so far off are, where each row is drawn from its own.

    A count where the probability is 0 cannot be.

    Args:
        counts: `[num_rows, num_cells]`.
        probabilities: `[num_rows, num_cells]`, each row's sum is 1.
    """
    assert not counts[probabilities == 0].any(), "tokens that cannot be drawn were drawn"
    statistic, degrees = 0.0, 0
    for row, shares in zip(counts.double(), probabilities.double(), strict=True):
        observed, expected = _merged(row, row.sum() * shares / shares.sum())
        statistic += float(((observed - expected) ** 2 / expected.clamp(min=1e-9)).sum())
        degrees += len(expected) - 1
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def _merged(observed: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns both with the smallest cells taken together, so that each holds enough."""
    order = expected.argsort(descending=True)
    observed, expected = observed[order], expected[order]
    tail = expected.flip(0).cumsum(0).flip(0)  # a cell and all smaller ones
    first = int(((expected >= MIN_EXPECTED) & (tail - expected >= MIN_EXPECTED)).sum())
    return (
        torch.cat((observed[:first], observed[first:].sum()[None])),
        torch.cat((expected[:first], expected[first:].sum()[None])),
    )
