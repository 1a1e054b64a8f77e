from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scheduling import workloads
from benchmarks.scheduling.comparison import (
    DifferentDecisionsError,
    Timing,
    compare,
    ratio_interval,
)
from benchmarks.scheduling.course import Block
from benchmarks.scheduling.peer import LocalPeer
from tests.benchmarks.builders import our_peer, our_side, small

SCARCE = small(workloads.closed_loop(16, True, scarce=True))


def block(*step_us: float) -> Block:
    times = [int(us * 1000) for us in step_us]
    return Block(schedule_ns=times, update_ns=[0] * len(times), num_preempted=[0] * len(times))


def test_all_sides_are_timed_in_every_block() -> None:
    result = compare(SCARCE, [our_peer("one"), our_peer("two")])
    assert [len(timing.blocks) for timing in result.timings] == [2, 2]
    assert result.num_steps == 16


def test_other_decisions_end_the_comparison() -> None:
    with pytest.raises(DifferentDecisionsError, match="closed_loop_scarce with 16 requests"):
        compare(SCARCE, [our_peer("one"), our_peer("two", num_gpu_blocks=90)])


def test_other_decisions_after_the_warm_up_end_it_too() -> None:
    load = small(workloads.decode(4, False))
    with pytest.raises(DifferentDecisionsError, match="num_tokens in the steps of block 0"):
        compare(load, [our_peer("one"), _Shortened("two")])


def test_the_ratio_lies_in_its_interval() -> None:
    ours = Timing("ours", [block(1, 2, 3), block(2, 2, 4), block(1, 1, 2)])
    theirs = Timing("theirs", [block(10, 20, 30), block(25, 20, 40), block(12, 10, 20)])
    low, high = ratio_interval(ours, theirs)
    assert low <= ours.step_us / theirs.step_us <= high


def test_a_step_is_its_schedule_and_its_update() -> None:
    timing = Timing("ours", [Block(schedule_ns=[1000, 3000], update_ns=[500, 500])])
    assert np.array_equal(timing.steps_us, [1.5, 3.5])


def test_where_nobody_arrives_there_is_no_arrival_time() -> None:
    assert Timing("ours", [block(1, 2)]).arrival_us is None


class _Shortened(LocalPeer):
    """A peer that leaves the last step of each block out."""

    def __init__(self, name: str) -> None:
        super().__init__(name, our_side)

    def measure(self) -> Block:
        block = super().measure()
        block.num_tokens.pop()
        return block
