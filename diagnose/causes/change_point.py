"""Where in a sequence of sizes its level changed, if it did.

The largest excursion of the cumulative sum of ranks. Ranks, because lengths of requests have heavy
tails and a few giants must not look like a change. Under no change the scaled excursion is the
supremum of a Brownian bridge, whose 99 % point is 1.628.

Source: the CUSUM test for one change in level; the limit is Kolmogorov's distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CRITICAL_VALUE = 1.628
"""99 % point of Kolmogorov's distribution."""
MIN_SIDE = 8
"""Values needed on each side of a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """The level changed before the value with this index."""

    index: int
    median_before: float
    median_after: float
    mean_before: float
    mean_after: float

    @property
    def ratio(self) -> float:
        """Level after the change, as a multiple of the level before."""
        return self.median_after / max(self.median_before, 1e-9)


def find_change(values: npt.NDArray[np.int64]) -> ChangePoint | None:
    """Returns the most likely change of level, or None where the sequence shows none."""
    n = len(values)
    if n < 2 * MIN_SIDE or values.min() == values.max():
        return None
    ranks = _mid_ranks(values)
    excursion = np.abs(np.cumsum(ranks - ranks.mean()))[:-1]
    index = int(excursion.argmax()) + 1
    if excursion[index - 1] / (ranks.std() * np.sqrt(n)) < CRITICAL_VALUE:
        return None
    if min(index, n - index) < MIN_SIDE:
        return None
    before, after = values[:index], values[index:]
    return ChangePoint(
        index=index,
        median_before=float(np.median(before)),
        median_after=float(np.median(after)),
        mean_before=float(before.mean()),
        mean_after=float(after.mean()),
    )


def _mid_ranks(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)
