"""When requests came faster than around it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from diagnose.causes.arrival_rate import find_faster
from diagnose.causes.traffic import Ints
from diagnose.reading import NS


def arrivals(seed: int, *stretches: tuple[float, float]) -> Ints:
    """Independent arrivals: (seconds, requests a second) for each stretch in turn."""
    random, at, end, found = Random(seed), 0.0, 0.0, []
    for seconds, rate in stretches:
        at, end = end, end + seconds
        while (at := at + random.expovariate(rate)) < end:
            found.append(int(at * NS))
    return np.array(found, dtype=np.int64)


def test_a_step_is_found_where_it_begins() -> None:
    faster = find_faster(arrivals(1, (60, 3), (40, 6)), 0, 100 * NS)
    assert faster is not None
    assert faster.start_ts / NS == pytest.approx(60, abs=6)
    assert faster.ratio == pytest.approx(2, rel=0.3)


def test_a_plateau_ends_too() -> None:
    faster = find_faster(arrivals(2, (60, 2), (30, 6), (60, 2)), 0, 150 * NS)
    assert faster is not None
    assert faster.end_ts / NS == pytest.approx(90, abs=6)
    assert faster.num_as_around == pytest.approx(60, rel=0.4)


def test_one_rate_is_hardly_ever_two() -> None:
    found = [find_faster(arrivals(seed, (120, 3)), 0, 120 * NS) for seed in range(40)]
    assert sum(each is not None for each in found) <= 1


def test_slower_arrivals_are_no_faster_ones_before() -> None:
    faster = find_faster(arrivals(3, (5, 4)), 0, 5 * NS)
    assert faster is None


def test_too_few_arrivals_say_nothing() -> None:
    assert find_faster(np.arange(6, dtype=np.int64) * NS, 0, 100 * NS) is None
