"""What a difference between recorded steps and others is made of."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.attaching.differences import WARM_STEPS, Difference, compare

STEADY = [[4, 64, 4]]


def block(is_on: bool, us: float, states: list[list[int]] = STEADY) -> str:
    """Returns a block of six steps that took `us` each, after warm ones that took far longer."""
    steps = [1_000_000] * WARM_STEPS + [round(us * 1000)] * 6
    halves = [n // 2 for n in steps]
    cpu = {"schedule": halves, "update": halves}
    return json.dumps({"on": is_on, **cpu, "wall": [10 * n for n in steps], "states": states})


def test_a_difference_is_recorded_less_unrecorded_without_the_warm_steps() -> None:
    found = compare([block(True, 30), block(False, 20), block(False, 22), block(True, 32)], 4, 64)
    assert found is not None
    assert (found.num_pairs, found.num_steps) == (2, 24)
    assert (found.cpu.off, found.cpu.on, found.cpu.mean) == (21, 31, 10)
    assert (found.schedule.mean, found.update.mean, found.wall.mean) == (5, 5, 100)


def test_a_pair_in_which_anything_changed_is_left_out() -> None:
    changing = block(False, 500, [[4, 63, 4], [4, 64, 4]])
    found = compare([block(True, 30), changing, block(True, 30), block(False, 20)], 4, 64)
    assert found is not None
    assert (found.num_pairs, found.cpu.mean) == (1, 10)


def test_without_a_steady_pair_there_is_no_comparison() -> None:
    assert compare([block(True, 30), block(False, 20)], 4, 0) is None
    assert compare([], 4, 64) is None


def test_one_disturbed_step_moves_the_mean_and_not_the_median() -> None:
    found = Difference.of([[20, 20, 20]] * 3, [[30, 30, 30], [30, 30, 930], [30, 30, 30]])
    assert (found.mean, found.median) == (110, 10)


def test_the_interval_holds_the_truth_and_narrows_with_more_pairs() -> None:
    draw = np.random.default_rng(1)
    widths = []
    for size in (40, 4000):
        machine = draw.normal(100, 50, (size, 1))
        found = Difference.of(machine, machine + draw.normal(10, 5, (size, 1)))
        assert found.low < 10 < found.high
        widths.append(found.half_width)
    assert widths[1] == pytest.approx(widths[0] / 10, rel=0.4)
