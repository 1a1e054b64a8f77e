"""Whether two measurements differ by more than chance: a bootstrap over stretches.

Steps and requests that lie close together are alike, so they are no independent samples. Each
window is cut into 16 stretches, equal in time for what is counted over time and equal in requests,
in order of arrival, for what is measured of each request. What lies in a stretch stays together:
stretches are drawn with replacement, on both sides, 2,000 times, and the difference is taken each
time. It is beyond noise where the middle 99.5 % of these differences, spread by a tenth because
the stretches are few, lie on one side of 0. With some thirty quantities compared at once, 95 %
would call one or two differences real that are not.

The draws have a fixed seed: the same logs give the same answer.

Source: Künsch 1989, block bootstrap for stationary observations. Where windows are so short that
neighbouring stretches are alike too, or the load drifts, the interval is too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from diagnose.diff.side import NUM_STRETCHES

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Outcome = Literal["beyond_noise", "within_noise", "too_few", "not_measured"]

NUM_DRAWS = 2_000
TAIL = 0.0025
"""Share of the draws that is left out at each end."""
WIDER = 1.1
"""So few stretches spread less when drawn than they do: sqrt(16 / 15), and Student's t for 30."""
MIN_SAMPLES = 20
"""Fewer say nothing. Starting value."""
MIN_STRETCHES = 5
"""Stretches in which something was measured, at least. Starting value."""
MOST_VALUES = 20_000
"""Values of a percentile that are drawn from; of more, evenly spaced ones are."""
SEED = 20_117

METHOD = (
    f"beyond noise: {NUM_STRETCHES} stretches a window, equal in time or in requests, drawn "
    f"{NUM_DRAWS:,} times with replacement; {100 * (1 - 2 * TAIL):g} % of the differences, spread "
    f"by {100 * (WIDER - 1):.0f} %, lie on one side of 0. Too few: under {MIN_SAMPLES} samples, "
    f"or in under {MIN_STRETCHES} stretches."
)


class Measured(Protocol):
    """A quantity of one side that can be measured again over drawn stretches."""

    @property
    def n(self) -> int:
        """Samples that it was measured over."""
        ...

    @property
    def is_count(self) -> bool:
        """Whether the samples are events, of which one side may have none."""
        ...

    @property
    def num_stretches(self) -> int:
        """Stretches in which there was anything to measure."""
        ...

    def over(self, draws: Ints) -> Floats:
        """Returns its value for each draw: `draws` is [num_draws, NUM_STRETCHES], how often."""
        ...


@dataclass(frozen=True)
class Ratio:
    """A sum over a sum: a rate, a share or a mean. Both are [NUM_STRETCHES].

    With `is_count`, `n` is how many events were counted, and may be 0 on one side.
    """

    above: Floats
    below: Floats
    n: int
    is_count: bool = False

    @property
    def num_stretches(self) -> int:
        """Stretches in which there was anything to divide by."""
        return int((self.below > 0).sum())

    def over(self, draws: Ints) -> Floats:
        """Returns the ratio for each draw; NaN where there is nothing to divide by."""
        below = draws @ self.below
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(below > 0, (draws @ self.above) / below, np.nan)


class Percentile:
    """A percentile of values that each belong to a stretch."""

    is_count = False

    def __init__(self, values: Floats, stretches: Ints, share: float) -> None:
        order = np.argsort(values, kind="stable")
        self._values, self._stretches = values[order], stretches[order]
        self._share = share
        self.n = len(values)

    @property
    def num_stretches(self) -> int:
        """Stretches that have a value."""
        return len(np.unique(self._stretches))

    def over(self, draws: Ints) -> Floats:
        """Returns the smallest value that so large a share does not exceed, for each draw."""
        if not self.n:
            return np.full(len(draws), np.nan)
        thinned = slice(None, None, -(-self.n // MOST_VALUES) if len(draws) > 1 else 1)
        values, stretches = self._values[thinned], self._stretches[thinned]
        told = np.empty(len(draws))
        for number, draw in enumerate(draws):
            below = np.cumsum(draw[stretches])
            place = np.searchsorted(below, self._share * below[-1]) if below[-1] else 0
            told[number] = values[min(place, len(values) - 1)] if below[-1] else np.nan
        return told


def summed(stretches: Ints, weights: Floats | None = None) -> Floats:
    """Returns the sum of the weights in each stretch, or how many there are."""
    return np.bincount(stretches, weights=weights, minlength=NUM_STRETCHES).astype(np.float64)


def value_of(measured: Measured) -> float | None:
    """Returns what was measured over the whole window; None where there was nothing."""
    value = float(measured.over(np.ones((1, NUM_STRETCHES), dtype=np.int64))[0])
    return None if np.isnan(value) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether two measurements differ, and between which bounds the difference lies (B less A)."""

    outcome: Outcome
    low: float | None = None
    high: float | None = None


def judge(a: Measured | None, b: Measured | None) -> Judgement:
    """Returns whether B differs from A by more than noise; None is not measured, and never 0."""
    if a is None or b is None or value_of(a) is None or value_of(b) is None:
        return Judgement(outcome="not_measured")
    if _too_few(a, b):
        return Judgement(outcome="too_few")
    random = np.random.default_rng(SEED)
    shape = np.full(NUM_STRETCHES, 1 / NUM_STRETCHES)
    draws = [random.multinomial(NUM_STRETCHES, shape, size=NUM_DRAWS) for _ in range(2)]
    differences = b.over(draws[1]) - a.over(draws[0])
    known = differences[~np.isnan(differences)]
    middle, *ends = np.quantile(known, [0.5, TAIL, 1 - TAIL])
    low, high = (float(middle + WIDER * (end - middle)) for end in ends)
    beyond: Outcome = "beyond_noise" if low > 0 or high < 0 else "within_noise"
    return Judgement(outcome=beyond, low=low, high=high)


def _too_few(a: Measured, b: Measured) -> bool:
    """Whether there is too little to say; of events there have to be enough on both together."""
    if min(a.num_stretches, b.num_stretches) < MIN_STRETCHES:
        return True
    return (a.n + b.n if a.is_count and b.is_count else min(a.n, b.n)) < MIN_SAMPLES
