from __future__ import annotations

import pytest

from benchmarks.scheduling import workloads
from benchmarks.scheduling.course import Block, Course
from benchmarks.scheduling.workloads import Workload
from tests.benchmarks.builders import our_side, small


def block_of(workload: Workload) -> tuple[int, Block]:
    course = Course(workload, our_side)
    return course.warm_up(), course.measure()


@pytest.mark.parametrize("load", workloads.quick(), ids=lambda load: load.name)
def test_a_workload_is_decided_the_same_way_twice(load: Workload) -> None:
    (first_sum, first), (second_sum, second) = block_of(load), block_of(load)
    assert first_sum == second_sum
    assert first.num_tokens == second.num_tokens
    assert first.num_preempted == second.num_preempted


def test_the_checksum_tells_other_decisions_apart() -> None:
    ample = workloads.closed_loop(8, True, scarce=False)
    scarce = workloads.closed_loop(8, True, scarce=True)
    assert block_of(ample)[0] != block_of(scarce)[0]


def test_a_decode_step_has_one_token_for_each_request() -> None:
    _, block = block_of(small(workloads.decode(20, False)))
    assert block.num_tokens == [20] * 8


def test_a_closed_loop_times_each_arrival() -> None:
    load = workloads.closed_loop(16, True, scarce=False)
    _, block = block_of(load)
    num_gone = sum(16 - num for num in block.num_requests)
    assert len(block.arrival_ns) == num_gone > 0


def test_scarce_memory_keeps_preempting() -> None:
    load = workloads.closed_loop(64, True, scarce=True)
    course = Course(load, our_side)
    course.warm_up()
    assert all(sum(course.measure().num_preempted) > 0 for _ in range(3))


def test_a_storm_is_run_until_nobody_is_left() -> None:
    _, block = block_of(workloads.preemption_storm(16, False))
    assert block.num_requests[-1] == 0
    assert sum(block.num_preempted) > 0


def test_a_mixed_step_is_filled_with_prefill() -> None:
    _, block = block_of(small(workloads.mixed_prefill(16, False)))
    assert block.num_tokens == [2048] * 8


def test_who_waits_beside_a_full_running_list_is_not_admitted() -> None:
    _, block = block_of(small(workloads.waiting(50)))
    assert block.num_tokens == [64] * 8
    assert block.num_requests == [114] * 8


def test_who_waits_for_a_grammar_is_not_admitted_either() -> None:
    _, block = block_of(small(workloads.waiting(50, aside=True, room=1)))
    assert block.num_tokens == [64] * 8
