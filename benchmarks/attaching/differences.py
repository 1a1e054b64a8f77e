"""The mean difference between recorded steps and others, and how far it can be trusted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WARM_STEPS = 16
"""Steps after a switch that are left out: the code that was off comes back into caches, and the
interpreter adapts itself to it again. It takes about ten steps."""
NUM_DRAWS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Recorded less unrecorded, in µs a step: the mean with its 95 % interval, and the median.

    The interval comes from resampling pairs of neighbouring blocks: within a pair the machine is
    the same, and steps of one block are not taken for independent. `median` is that of the pairs'
    differences between block medians: what a step costs that nothing else disturbed.
    """

    off: float
    on: float
    mean: float
    low: float
    high: float
    median: float

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    @classmethod
    def of(cls, off: Sequence[Sequence[float]], on: Sequence[Sequence[float]]) -> Difference:
        """Returns the difference of pairs of blocks, each a step's µs one by one."""
        means_off, means_on = ([np.mean(block) for block in blocks] for blocks in (off, on))
        medians_off, medians_on = ([np.median(block) for block in blocks] for blocks in (off, on))
        pairs = np.asarray(means_on) - np.asarray(means_off)
        draws = np.random.default_rng(0).integers(len(pairs), size=(NUM_DRAWS, len(pairs)))
        low, high = np.percentile(pairs[draws].mean(axis=1), [2.5, 97.5])
        return cls(
            off=float(np.mean(means_off)),
            on=float(np.mean(means_on)),
            mean=float(pairs.mean()),
            low=float(low),
            high=float(high),
            median=float(np.median(np.asarray(medians_on) - np.asarray(medians_off))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What one workload gave: the scheduler's CPU and the whole step, by the wall's clock.

    `cpu` is `schedule()` and `update_from_output()` together.
    """

    num_pairs: int
    num_steps: int
    schedule: Difference
    update: Difference
    cpu: Difference
    wall: Difference


def compare(lines: Iterable[str], num_running: int, num_waiting: int) -> Comparison | None:
    """Returns the comparison over all pairs of blocks in which exactly so many ran and waited.

    `None` where there is no such pair.
    """
    blocks = [json.loads(line) for line in lines]
    wanted = [[num_running, num_waiting, num_running]]
    pairs = [
        {block["on"]: block for block in pair}
        for pair in zip(blocks[::2], blocks[1::2], strict=False)
        if all(block["states"] == wanted for block in pair)
    ]
    if not pairs:
        return None
    return Comparison(
        num_pairs=len(pairs),
        num_steps=sum(len(block["wall"]) - WARM_STEPS for pair in pairs for block in pair.values()),
        schedule=_difference(pairs, "schedule"),
        update=_difference(pairs, "update"),
        cpu=_difference(pairs, "schedule", "update"),
        wall=_difference(pairs, "wall"),
    )


def states_of(lines: Iterable[str], most: int = 3) -> list[tuple[list[list[int]], int]]:
    """Returns the states that most blocks were in, and how many blocks each."""
    seen = Counter(json.dumps(json.loads(line)["states"]) for line in lines)
    return [(json.loads(states), number) for states, number in seen.most_common(most)]


def _difference(pairs: Sequence[dict[bool, Any]], *clocks: str) -> Difference:
    """Returns the difference of the sum of some clocks."""
    off, on = ([_us(pair[is_on], clocks) for pair in pairs] for is_on in (False, True))
    return Difference.of(off, on)


def _us(block: dict[str, Any], clocks: Sequence[str]) -> list[float]:
    steps = zip(*(block[clock][WARM_STEPS:] for clock in clocks), strict=True)
    return [sum(times) / 1000 for times in steps]
