"""When requests came faster than around it, and by how much.

The stretch of time whose arrivals are least likely under the rate around it: a scan statistic, the
largest log-likelihood ratio of two Poisson rates against one. It finds a step (the stretch reaches
to the end) as well as a plateau, and says nothing where arrivals merely scatter.

Source: Kulldorff's spatial scan statistic, in one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnose.causes.traffic import Ints

NUM_BINS = 96
"""Moments at which a stretch may begin or end."""
MIN_LIKELIHOOD = 8.7
"""Least log-likelihood ratio of a stretch: chance reaches it in 1 of 100 runs of 330 arrivals."""
MIN_STEP_LIKELIHOOD = 5.5
"""The same for one that reaches to the end, of which there are far fewer to choose from."""
MIN_INSIDE = 8
"""Arrivals that a stretch needs. Starting value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterStretch:
    """A stretch in which `num_inside` requests came, `ratio` times the rate around it."""

    start_ts: int
    end_ts: int
    num_inside: int
    per_second: float
    per_second_around: float

    @property
    def ratio(self) -> float:
        """Rate inside, as a multiple of the rate around."""
        return self.per_second / max(self.per_second_around, 1e-9)

    @property
    def num_as_around(self) -> int:
        """How many would have come in it at the rate around it."""
        return round(self.num_inside / max(self.ratio, 1.0))


def find_faster(arrived_ts: Ints, start_ts: int, end_ts: int) -> FasterStretch | None:
    """Returns the stretch in which requests came faster; `None` where there was none.

    Args:
        arrived_ts: moments of arrival in order; those outside the two others are left out.
        start_ts: from when on arrivals are looked at.
        end_ts: until when.
    """
    arrived = arrived_ts[(arrived_ts >= start_ts) & (arrived_ts <= end_ts)]
    if len(arrived) < 2 * MIN_INSIDE or arrived[0] == arrived[-1]:
        return None
    edges = np.linspace(int(arrived[0]), int(arrived[-1]) + 1, NUM_BINS + 1).astype(np.int64)
    counts = np.searchsorted(arrived, edges)
    inside = (counts[None, :] - counts[:, None]).astype(np.float64)
    expected = (edges[None, :] - edges[:, None]) * (len(arrived) / (edges[-1] - edges[0]))
    likelihood = _likelihood(inside, expected, float(len(arrived)))
    first, last = np.unravel_index(int(likelihood.argmax()), likelihood.shape)
    if likelihood[first, last] < MIN_LIKELIHOOD:
        first, last = likelihood[:, -1].argmax(), np.intp(NUM_BINS)
        if likelihood[first, last] < MIN_STEP_LIKELIHOOD:
            return None
    return _described(int(edges[first]), int(edges[last]), edges, inside[first, last], len(arrived))


def _likelihood(
    inside: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    expected: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    total: float,
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Returns by how much two rates explain each stretch better than one; 0 where it is slower."""
    outside, rest = total - inside, total - expected
    usable = (expected > 0) & (rest > 1e-9) & (inside >= MIN_INSIDE) & (inside > expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = inside * np.log(inside / expected)
        gain += np.where(outside > 0, outside * np.log(np.maximum(outside, 1e-9) / rest), 0.0)
    return np.where(usable, gain, 0.0)


def _described(start: int, end: int, edges: Ints, num_inside: float, total: int) -> FasterStretch:
    around_ns = int(edges[-1]) - int(edges[0]) - (end - start)
    return FasterStretch(
        start_ts=start,
        end_ts=end,
        num_inside=int(num_inside),
        per_second=1e9 * num_inside / (end - start),
        per_second_around=1e9 * (total - num_inside) / max(around_ns, 1),
    )
