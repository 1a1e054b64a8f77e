"""What is called a difference, and what is not: known samples, drawn with a fixed seed."""

from __future__ import annotations

import numpy as np
import pytest

from diagnose.diff.noise import MIN_SAMPLES, Percentile, Ratio, judge, value_of
from diagnose.diff.side import NUM_STRETCHES


def percentile(values: list[float] | np.ndarray, share: float = 0.5) -> Percentile:
    known = np.asarray(values, dtype=float)
    return Percentile(known, np.arange(len(known)) * NUM_STRETCHES // max(len(known), 1), share)


def rate(counts: list[float] | np.ndarray) -> Ratio:
    known = np.asarray(counts, dtype=float)
    return Ratio(known, np.ones(NUM_STRETCHES), int(known.sum()), is_count=True)


def drawn(seed: int, mean: float, n: int = 400) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1.0, n)


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    assert value_of(percentile(list(range(1, 101)), 0.95)) == 95
    assert value_of(percentile([3.0, 1.0, 2.0], 0.5)) == 2


def test_nothing_measured_is_no_number() -> None:
    assert value_of(percentile([])) is None
    assert value_of(Ratio(np.ones(NUM_STRETCHES), np.zeros(NUM_STRETCHES), 0)) is None


def test_a_clear_difference_is_beyond_noise() -> None:
    judged = judge(percentile(drawn(1, 10)), percentile(drawn(2, 12)))
    assert judged.outcome == "beyond_noise"
    assert judged.low is not None
    assert judged.high is not None
    assert 0 < judged.low < 2 < judged.high < 4


def test_the_bounds_are_of_b_less_a() -> None:
    judged = judge(percentile(drawn(1, 12)), percentile(drawn(2, 10)))
    assert judged.high is not None
    assert judged.high < 0


def test_the_same_twice_is_within_noise() -> None:
    values = percentile(drawn(1, 10))
    assert judge(values, values).outcome == "within_noise"


def test_equal_numbers_without_any_spread_do_not_differ() -> None:
    assert judge(percentile([64.0] * 40), percentile([64.0] * 90)).outcome == "within_noise"


def test_numbers_without_any_spread_differ_where_they_are_not_equal() -> None:
    assert judge(percentile([64.0] * 40), percentile([65.0] * 40)).outcome == "beyond_noise"


def test_two_halves_of_the_same_are_seldom_called_different() -> None:
    outcomes = [
        judge(percentile(drawn(seed, 10)), percentile(drawn(1000 + seed, 10))).outcome
        for seed in range(60)
    ]
    assert outcomes.count("beyond_noise") <= 3


def test_samples_that_lie_together_are_not_independent() -> None:
    """400 values in 16 lumps of 25 equal ones say as much as 16 values, not as 400."""
    lumps = [np.repeat(drawn(seed, 10, NUM_STRETCHES), 25) for seed in (3, 4)]
    apart = [percentile(values) for values in (drawn(3, 10), drawn(4, 10))]
    wide, narrow = judge(*(percentile(values) for values in lumps)), judge(*apart)
    assert wide.high is not None
    assert wide.low is not None
    assert narrow.high is not None
    assert narrow.low is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_events_on_one_side_alone_are_enough() -> None:
    assert judge(rate([6] * NUM_STRETCHES), rate([0] * NUM_STRETCHES)).outcome == "beyond_noise"


@pytest.mark.parametrize(("num", "outcome"), [(MIN_SAMPLES - 1, "too_few"), (400, "beyond_noise")])
def test_too_few_samples_are_said(num: int, outcome: str) -> None:
    assert judge(percentile(drawn(1, 10, num)), percentile(drawn(2, 20, 400))).outcome == outcome


def test_what_lies_in_few_stretches_is_too_few() -> None:
    counts = np.zeros(NUM_STRETCHES)
    counts[:2] = 50
    lump = Ratio(counts, np.where(counts > 0, 1.0, 0.0), 100)
    assert judge(lump, lump).outcome == "too_few"


def test_not_measured_is_never_zero() -> None:
    assert judge(None, rate([6] * NUM_STRETCHES)).outcome == "not_measured"
    assert judge(percentile([]), percentile(drawn(1, 10))).outcome == "not_measured"


def test_the_same_samples_give_the_same_bounds() -> None:
    assert judge(percentile(drawn(1, 10)), percentile(drawn(2, 11))) == judge(
        percentile(drawn(1, 10)), percentile(drawn(2, 11))
    )
