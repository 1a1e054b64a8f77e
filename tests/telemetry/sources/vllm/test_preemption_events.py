"""What is told of a preemption, in situations where each number is known beforehand."""

from __future__ import annotations

import pytest

from telemetry.records import RequestPreempted
from telemetry.vocabulary import PreemptionCause, VictimRule
from tests.telemetry.sources.vllm.conftest import Lab


def preemptions(lab: Lab, situation: str) -> list[RequestPreempted]:
    events = lab.runs.situations[situation].events
    return [event for event in events if isinstance(event, RequestPreempted)]


def test_the_tail_goes_for_one_before_it(lab: Lab) -> None:
    (event,) = preemptions(lab, "evicts_the_tail")
    assert event.cause == PreemptionCause.kv_full
    assert event.victim_rule == VictimRule.running_tail
    assert (event.request, event.beneficiary) == (1, 0)
    assert event.beneficiary_allocated == 1
    assert (event.num_blocks_needed, event.num_blocks_free_before) == (1, 0)
    assert event.num_blocks_freed == 1


def test_the_tail_goes_for_itself(lab: Lab) -> None:
    (event,) = preemptions(lab, "evicts_itself")
    assert event.victim_rule == VictimRule.itself
    assert event.request == event.beneficiary == 1
    assert event.beneficiary_allocated == 0


def test_the_least_urgent_gives_back_what_it_was_given(lab: Lab) -> None:
    (event,) = preemptions(lab, "evicts_the_least_urgent")
    assert event.cause == PreemptionCause.priority
    assert event.victim_rule == VictimRule.lowest_priority
    assert (event.victim_priority, event.beneficiary_priority) == (7, 2)
    assert event.num_withdrawn_tokens == 1
    assert event.num_computed_tokens_lost == 14


def test_an_eviction_in_vain_says_so(lab: Lab) -> None:
    first, second = preemptions(lab, "evicts_in_vain")
    assert (first.request, first.beneficiary, first.beneficiary_allocated) == (1, 0, 0)
    assert (second.request, second.beneficiary) == (0, 0)
    assert (first.num_blocks_needed, first.num_blocks_freed) == (2, 1)
    assert second.num_blocks_free_before == 1
    assert (first.was_prefill, second.was_prefill) == (0, 1)


@pytest.mark.parametrize("index", [0, 1])
def test_a_reset_evicts_all_for_nobody(lab: Lab, index: int) -> None:
    event = preemptions(lab, "resets")[index]
    assert event.cause == PreemptionCause.cache_reset
    assert event.victim_rule == VictimRule.all
    assert event.beneficiary is None
    assert event.beneficiary_allocated is None
    assert event.num_blocks_needed is None
    assert (event.num_computed_tokens_lost, event.num_output_tokens_kept) == (21, 2)
    assert event.nth == 1
