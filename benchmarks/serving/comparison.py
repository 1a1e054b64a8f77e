"""Sides under one load, round by round in turns, and what that says."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.serving.loads import Load
from benchmarks.serving.measuring import Round
from benchmarks.serving.sides import Side

WARM_UP_SEED = 1_000_000
"""The round before the first: also the one whose texts are compared."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median of ratios by round, with its 95 % interval from resampling the rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far a side's texts are the first side's, token by token.

    Attributes:
        equal_ratio: texts that are equal to their ends.
        shared_ratio: tokens before the first difference, of all.
    """

    equal_ratio: float
    shared_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one load gave on each side. One that takes part in fewer rounds has the first ones."""

    load: Load
    rounds: Mapping[str, Sequence[Round]]
    agreement: Mapping[str, Agreement]

    def throughput_ratio(self, first: str, second: str) -> Ratio:
        """Returns tokens a second of one side over the other's."""
        return self._ratio(
            [r.tokens_per_second for r in self.rounds[first]],
            [r.tokens_per_second for r in self.rounds[second]],
        )

    def cpu_ratio(self, first: str, second: str) -> Ratio:
        """Returns CPU a token of one side over the other's."""
        return self._ratio(
            [r.cpu_ms_per_token for r in self.rounds[first]],
            [r.cpu_ms_per_token for r in self.rounds[second]],
        )

    def _ratio(self, first: Sequence[float], second: Sequence[float]) -> Ratio:
        num_pairs = min(len(first), len(second))
        return ratio_of(np.array(first[:num_pairs]) / np.array(second[:num_pairs]))


def ratio_of(ratios: np.ndarray, resamples: int = 4000) -> Ratio:
    """Returns the median of ratios and its interval."""
    generator = np.random.default_rng(0)
    medians = np.median(generator.choice(ratios, size=(resamples, len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def compare(
    load: Load, sides: Sequence[Side], num_rounds: int, fewer: Mapping[str, int]
) -> Outcome:
    """Plays a load on all sides, in turns.

    Args:
        fewer: rounds of sides that take part in fewer of them.

    Raises:
        DifferentWorkError: a side did not do what was asked.
    """
    outputs = {side.name: side.outputs(load, WARM_UP_SEED) for side in sides}
    rounds: dict[str, list[Round]] = {side.name: [] for side in sides}
    for number in range(num_rounds):
        for side in sides if number % 2 else reversed(sides):
            if number >= fewer.get(side.name, num_rounds):
                continue
            played = side.play(load, seed=number)
            played.check(load, side.name)
            rounds[side.name].append(played)
            print(
                f"concurrency {load.concurrency}, round {number + 1}, {side.name}: "
                f"{played.tokens_per_second:,.0f} tokens/s",
                file=sys.stderr,
                flush=True,
            )
    reference = outputs[sides[0].name]
    agreement = {name: agreement_of(reference, each) for name, each in outputs.items()}
    return Outcome(load=load, rounds=rounds, agreement=agreement)


def agreement_of(reference: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> Agreement:
    """Returns how far texts agree with others of the same prompts."""
    pairs = list(zip(reference, others, strict=True))
    shared = sum(_num_shared(first, second) for first, second in pairs)
    return Agreement(
        equal_ratio=sum(list(first) == list(second) for first, second in pairs) / len(pairs),
        shared_ratio=shared / sum(len(first) for first in reference),
    )


def _num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
