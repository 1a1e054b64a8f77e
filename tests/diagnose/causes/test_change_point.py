from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.causes.change_point import MIN_SIDE, find_change


def test_a_step_is_found_where_it_is() -> None:
    change = find_change(np.array([10] * 30 + [20] * 30))
    assert change is not None
    assert change.index == 30
    assert change.ratio == 2.0


def test_noise_is_no_change() -> None:
    rng = np.random.default_rng(7)
    heavy_tailed = (rng.pareto(1.5, size=(200, 300)) * 100).astype(np.int64)
    assert sum(find_change(row) is not None for row in heavy_tailed) <= 6  # 1 % expected


def test_a_few_giants_are_no_change() -> None:
    assert find_change(np.array([10, 12] * 40 + [100_000] * 3)) is None


def test_equal_values_are_no_change() -> None:
    assert find_change(np.full(100, 64)) is None


def test_too_few_values_are_not_judged() -> None:
    assert find_change(np.array([1] * (MIN_SIDE - 1) + [9] * MIN_SIDE)) is None


@given(st.lists(st.integers(0, 1 << 20), max_size=80))
def test_whatever_is_found_lies_inside(values: list[int]) -> None:
    change = find_change(np.array(values, dtype=np.int64))
    assert change is None or MIN_SIDE <= change.index <= len(values) - MIN_SIDE
