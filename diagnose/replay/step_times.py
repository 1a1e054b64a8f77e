"""How long a step takes, learned from the steps of the same log.

A step's time is a sum of non-negative parts, one for each of its features (`FEATURES`): least
squares, in which a feature whose part comes out negative is left out. What is left over is kept by
kind and size of step, and drawn from when a step is replayed; so times scatter as they did, and a
curve that the sum cannot follow is followed all the same. A machine is not equally fast all the
time (other work runs beside it, clocks change): how much slower than on the whole it was, in each
stretch of the log, is a factor that a replay applies at the same time.

With seed 0 nothing is drawn: a step gets what was left over in the step of its kind that began at
the same time. Under the recorded settings that is the very step, as long as the replay follows the
record; under others it is what the machine happened to do then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEATURES = (
    "each step",
    "decoding requests",
    "prefill tokens",
    "prefilling requests",
    "prefill tokens squared, by request",
    "KV tokens in use",
    "admissions",
    "draft tokens",
    "encoder embeddings",
    "tokens from a connector",
)
NUM_FEATURES = len(FEATURES)
DECODES, PREFILL_TOKENS = 1, 2
MIN_STEPS = 20
"""With fewer steps there is nothing to learn from."""
_BINS = 12
_KEPT = 4096
"""Residuals of a bin that are drawn from."""
_DRIFT_STEPS = 64
_MAX_STRETCHES = 512
"""A stretch of the log has so many steps at least; there are so many stretches at most."""
_DRIFT_LIMITS = (0.25, 4.0)
_TRIM = 6.0
"""Residuals beyond so many typical ones take no part in the second fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """What the sum leaves over, by predicted time: `edges` part the bins; ns."""

    edges: tuple[float, ...]
    values: tuple[Floats, ...]

    def bin_of(self, predicted: float) -> int:
        """Returns the bin of a predicted time."""
        return bisect_right(self.edges, predicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """What the sum left over: `values[i]` (ns) in the step that began at `begins[i]` (ns)."""

    begins: array[float]
    values: array[float]

    @classmethod
    def of(cls, begins: Floats, values: Floats) -> InPlace:
        """Returns the steps as they came."""
        return cls(begins=array("d", begins.tolist()), values=array("d", values.tolist()))

    def at(self, now_ns: float) -> float | None:
        """Returns what was left over nearest to a time; `None` behind the last step."""
        index = bisect_left(self.begins, now_ns)
        if index == len(self.begins):
            return None
        if index and now_ns - self.begins[index - 1] < self.begins[index] - now_ns:
            index -= 1
        return self.values[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How much slower than on the whole a machine was: `factors[i]` up to `ends_ns[i]`."""

    ends_ns: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def factor(self, now_ns: float) -> float:
        """Returns the factor at a time; 1 behind the last stretch."""
        index = bisect_left(self.ends_ns, now_ns)
        return self.factors[index] if index < len(self.factors) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """A fitted model of step times, in ns.

    `coefficients` belong to `FEATURES`. `gap_ns` is the part of a step's time that comes after its
    tokens are out. `error_ratio` is the mean absolute error of a step over the mean step;
    `explained_ratio` the share of the variance that the features explain. `largest` has the largest
    recorded value of each feature: beyond it the model only extrapolates.
    """

    coefficients: tuple[float, ...]
    decode_residuals: Residuals
    mixed_residuals: Residuals
    decodes_in_place: InPlace
    mixed_in_place: InPlace
    gap_ns: int
    empty_ns: int
    """Time of a step that schedules nothing."""
    wake_ns: int
    """From an arrival at an idle engine to its step; who comes meanwhile is in it."""
    shortest_ns: float
    mean_ns: float
    error_ratio: float
    explained_ratio: float
    num_steps: int
    largest: tuple[float, ...]
    drift: Drift = field(default_factory=Drift)

    def predicted(self, features: Sequence[float]) -> float:
        """Returns the sum of the parts."""
        return sum(map(float.__mul__, self.coefficients, features))


class StepClock:
    """Gives step times from a model; the same seed gives the same times.

    Args:
        seed: of the draws; with 0 what is left over is that of the same time.
    """

    def __init__(self, times: StepTimes, seed: int) -> None:
        self._times = times
        self._parts = [(i, c) for i, c in enumerate(times.coefficients) if c]
        self._random = np.random.default_rng(seed)
        self._draws: list[float] = []
        self._is_in_place = seed == 0

    def draw(self, features: Sequence[float], now_ns: int) -> int:
        """Returns the time of a step with these features that begins now, in ns."""
        times = self._times
        predicted = 0.0
        for index, coefficient in self._parts:
            predicted += coefficient * features[index]
        predicted *= times.drift.factor(now_ns)
        is_mixed = features[PREFILL_TOKENS] > 0
        left_over = None
        if self._is_in_place:
            in_place = times.mixed_in_place if is_mixed else times.decodes_in_place
            left_over = in_place.at(now_ns)
        if left_over is None:
            residuals = times.mixed_residuals if is_mixed else times.decode_residuals
            values = residuals.values[residuals.bin_of(predicted)]
            left_over = values[int(self.random() * len(values))] if len(values) else 0.0
        return int(max(times.shortest_ns, predicted + left_over))

    def random(self) -> float:
        """Returns a number from 0 to below 1."""
        if not self._draws:
            self._draws = self._random.random(8192).tolist()
        return self._draws.pop()


def fit(
    features: Floats,
    durations_ns: Floats,
    begins_ns: Floats,
    *,
    gap_ns: int = 0,
    wake_ns: int = 0,
    empty_ns: int = 100_000,
) -> StepTimes:
    """Returns the model of steps that scheduled something.

    Args:
        features: `[num_steps, NUM_FEATURES]`.
        durations_ns: `[num_steps]`.
        begins_ns: the same, when each began, in order.

    Raises:
        ValueError: there are fewer than `MIN_STEPS` steps.
    """
    if len(durations_ns) < MIN_STEPS:
        raise ValueError(f"{len(durations_ns)} steps are too few: {MIN_STEPS} are the least")
    kept = _without_outliers(features, durations_ns, _non_negative(features, durations_ns))
    coefficients = _non_negative(features[kept], durations_ns[kept])
    predicted = features @ coefficients
    drift, factors = _drift(predicted, durations_ns, begins_ns, kept)
    predicted = predicted * factors
    left_over = durations_ns - predicted
    is_mixed = features[:, PREFILL_TOKENS] > 0
    error = np.abs(left_over[kept]).mean() / durations_ns.mean()
    variance = float(durations_ns[kept].var())
    explained = 1.0 - float(left_over[kept].var()) / variance if variance else 1.0
    every = _residuals(predicted, left_over)
    return StepTimes(
        coefficients=tuple(coefficients.tolist()),
        decode_residuals=_of_kind(predicted, left_over, ~is_mixed) or every,
        mixed_residuals=_of_kind(predicted, left_over, is_mixed) or every,
        decodes_in_place=InPlace.of(begins_ns[~is_mixed], left_over[~is_mixed]),
        mixed_in_place=InPlace.of(begins_ns[is_mixed], left_over[is_mixed]),
        gap_ns=gap_ns,
        wake_ns=wake_ns,
        empty_ns=empty_ns,
        shortest_ns=float(durations_ns.min()),
        mean_ns=float(durations_ns.mean()),
        error_ratio=float(error),
        explained_ratio=max(0.0, explained),
        num_steps=len(durations_ns),
        largest=tuple(features.max(axis=0).tolist()),
        drift=drift,
    )


def _drift(
    predicted: Floats, durations: Floats, begins: Floats, kept: npt.NDArray[np.bool_]
) -> tuple[Drift, Floats]:
    """Returns how a machine's speed changed, and the factor of each step."""
    num_stretches = max(1, min(_MAX_STRETCHES, len(predicted) // _DRIFT_STEPS))
    parts = np.array_split(np.arange(len(predicted)), num_stretches)
    factors, ends = [], []
    for part in parts:
        usual = part[kept[part]]
        expected = float(predicted[usual].sum())
        ratio = float(durations[usual].sum()) / expected if expected else 1.0
        factors.append(min(max(ratio, _DRIFT_LIMITS[0]), _DRIFT_LIMITS[1]))
        ends.append(float(begins[part[-1]]))
    lengths = [len(part) for part in parts]
    return Drift(ends_ns=tuple(ends), factors=tuple(factors)), np.repeat(factors, lengths)


def _non_negative(features: Floats, durations: Floats) -> Floats:
    """Returns least-squares parts, leaving out one by one the most negative ones."""
    scale = np.abs(features).max(axis=0)
    used = [index for index in range(features.shape[1]) if scale[index] > 0]
    solved = np.zeros(features.shape[1])
    while used:
        found, *_ = np.linalg.lstsq(features[:, used] / scale[used], durations, rcond=None)
        worst = int(found.argmin())
        if found[worst] >= 0:
            solved[used] = found / scale[used]
            break
        del used[worst]
    return solved


def _without_outliers(
    features: Floats, durations: Floats, coefficients: Floats
) -> npt.NDArray[np.bool_]:
    left_over = np.abs(durations - features @ coefficients)
    typical = float(np.median(left_over))
    return left_over <= max(_TRIM * typical, 1.0)


def _of_kind(
    predicted: Floats, left_over: Floats, chosen: npt.NDArray[np.bool_]
) -> Residuals | None:
    return _residuals(predicted[chosen], left_over[chosen]) if chosen.any() else None


def _residuals(predicted: Floats, left_over: Floats) -> Residuals:
    """Parts steps into bins of equal number by predicted time."""
    num_bins = max(1, min(_BINS, len(predicted) // 32))
    edges = np.unique(np.quantile(predicted, np.arange(1, num_bins) / num_bins))
    bins = np.searchsorted(edges, predicted, side="right")
    values = []
    for index in range(len(edges) + 1):
        mine = left_over[bins == index]
        values.append(mine[:: max(1, -(-len(mine) // _KEPT))].copy())
    return Residuals(edges=tuple(edges.tolist()), values=tuple(values))
