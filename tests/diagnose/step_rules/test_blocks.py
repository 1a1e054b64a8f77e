"""Rules about KV blocks: who holds them, who is held up for them, evictions that free none."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.finding import Severity, Suppressed
from telemetry.vocabulary import PreemptionCause, StopReason
from tests.diagnose.logs import preempting_step
from tests.diagnose.step_rules.states import (
    LogBuilder,
    calm,
    described,
    found,
    is_healthy,
    judge,
    lasting,
    missing,
    steps,
    verdicts,
)

# --------------------------------------------------------------------- preempt-zero-reclaim-cascade


def cascade(num_victims: int = 3, **event: Any) -> LogBuilder:
    vllm = {"source": "vllm", "version": "0.32.0", "async_scheduling": True}
    log = calm(described(**vllm, kv_connector="P2pConnector"))
    own = {"num_blocks_freed": 0, "num_blocks_deferred": 4}
    return calm(preempting_step(log, list(range(10, 10 + num_victims)), **(own | event)))


def test_evictions_of_one_step_that_free_nothing_are_a_cascade() -> None:
    finding = found(cascade(), "preempt-zero-reclaim-cascade")
    assert finding.cause.kind == "code"
    assert [item.value for item in finding.evidence] == [3, 12]


def test_two_are_enough() -> None:
    assert found(cascade(2), "preempt-zero-reclaim-cascade").severity is Severity.critical


def test_one_is_not() -> None:
    assert is_healthy(cascade(1), "preempt-zero-reclaim-cascade")


def test_evictions_that_free_blocks_are_no_cascade() -> None:
    assert is_healthy(cascade(num_blocks_freed=2), "preempt-zero-reclaim-cascade")


def test_nothing_put_off_is_no_cascade() -> None:
    assert is_healthy(cascade(num_blocks_deferred=0), "preempt-zero-reclaim-cascade")


def test_a_cascade_without_block_counts_is_not_measured() -> None:
    log = cascade(num_blocks_freed=None, num_blocks_deferred=None)
    assert "preemptions.num_blocks_freed" in missing(log, "preempt-zero-reclaim-cascade")


def test_asynchronous_scheduling_is_turned_off_only_where_it_is_on() -> None:
    flags = [action.flag for action in found(cascade(), "preempt-zero-reclaim-cascade").actions]
    assert flags == [None, "--no-async-scheduling"]


# ---------------------------------------------------------------------------------- kv-head-of-line


def head_of_line(number: int = 40, **columns: Any) -> LogBuilder:
    log = described()
    own = {
        "running": 4, "waiting": 6, "free": 10, "head_request": 7, "head_blocks_needed": 40,
        "min_follower_blocks_needed": 2, "stop": StopReason.kv_blocks_whole_prompt,
    }  # fmt: skip
    return calm(steps(calm(log), number, **(own | columns)))


def test_a_large_head_before_small_requests_holds_them_up() -> None:
    finding = found(head_of_line(), "kv-head-of-line")
    assert "Request 7 at the head needs 40 KV blocks and 10 are free" in finding.sentence
    assert finding.evidence[0].value == 1.0


def test_at_twenty_steps_the_head_is_found() -> None:
    assert found(head_of_line(20), "kv-head-of-line").evidence[0].n == 20


def test_under_twenty_steps_it_is_not() -> None:
    assert is_healthy(head_of_line(19), "kv-head-of-line")


def test_followers_that_would_not_fit_are_not_held_up() -> None:
    assert is_healthy(head_of_line(min_follower_blocks_needed=11), "kv-head-of-line")


def test_a_head_that_fits_holds_up_nobody() -> None:
    assert is_healthy(head_of_line(head_blocks_needed=10), "kv-head-of-line")


def test_a_head_that_waits_for_a_slot_is_no_matter_of_blocks() -> None:
    assert is_healthy(head_of_line(stop=StopReason.max_num_seqs), "kv-head-of-line")


def test_a_head_in_half_the_steps_is_found_and_in_fewer_is_not() -> None:
    half = {"stop": StopReason.token_budget, "waiting": 3}
    assert found(steps(head_of_line(40), 40, **half), "kv-head-of-line")
    assert is_healthy(steps(head_of_line(40), 90, **half), "kv-head-of-line")


def test_steps_in_which_the_head_waits_alone_say_nothing_of_followers() -> None:
    alone = {"head_request": 7, "stop": StopReason.kv_blocks_whole_prompt, "waiting": 1}
    log = steps(head_of_line(40), 90, free=10, head_blocks_needed=40, **alone)
    finding = found(log, "kv-head-of-line")
    assert finding.evidence[0].n == 40


def behind_a_watermark(**columns: Any) -> LogBuilder:
    """A head that 12 blocks kept by the watermark (0.2 of 64) stop, with followers."""
    log = described(watermark=0.2)
    own = {
        "running": 4, "waiting": 6, "free": 30, "head_request": 7, "head_blocks_needed": 40,
        "min_follower_blocks_needed": 2, "stop": StopReason.kv_watermark,
    }  # fmt: skip
    return calm(steps(calm(log), 40, **(own | columns)))


def test_a_watermark_is_no_part_of_what_the_head_needs() -> None:
    finding = found(behind_a_watermark(), "kv-head-of-line")
    assert "needs 40 KV blocks, 12 for the watermark, and 30 are free" in finding.sentence
    assert "large request: 28 of 63 blocks" in finding.cause.sentence


def test_equal_requests_that_a_watermark_stops_hold_up_nobody() -> None:
    equal = {"head_blocks_needed": 4 + 12, "min_follower_blocks_needed": 4, "free": 15}
    assert is_healthy(behind_a_watermark(**equal), "kv-head-of-line")


@pytest.mark.parametrize(("least", "is_held_up"), [(14, True), (15, False)])
def test_a_follower_has_to_leave_the_watermark_free(least: int, is_held_up: bool) -> None:
    log = behind_a_watermark(min_follower_blocks_needed=least, free=26)
    assert is_healthy(log, "kv-head-of-line") is not is_held_up


@pytest.mark.parametrize(("free", "is_held_up"), [(19, True), (18, False)])
def test_a_tenth_has_to_be_free_beyond_the_watermark(free: int, is_held_up: bool) -> None:
    log = behind_a_watermark(free=free)
    assert is_healthy(log, "kv-head-of-line") is not is_held_up


def test_who_is_behind_the_head_does_not_count_the_head() -> None:
    finding = found(head_of_line(), "kv-head-of-line")
    assert "up to 5 requests behind it" in finding.sentence
    assert finding.num_affected == 5


def test_priorities_are_advised_only_to_an_engine_without() -> None:
    flags = [action.flag for action in found(head_of_line(), "kv-head-of-line").actions]
    assert flags == [None, "--scheduling-policy"]


# ---------------------------------------------------------------------------- queueing-with-kv-full


def full_pool(number: int = 60, **columns: Any) -> LogBuilder:
    log = described()
    own = {"running": 8, "waiting": 3, "free": 1, "stop": StopReason.kv_blocks_chunk}
    steps(calm(log), 10, running=8, free=2)
    for nth in range(number):
        steps(log, 1, **(own | {"head_request": nth // 5} | columns))
    return calm(log)


def test_a_full_pool_with_a_queue_is_told_with_what_came_first() -> None:
    finding = found(full_pool(), "queueing-with-kv-full")
    assert "the pool was full 100 ms before anybody queued" in finding.sentence
    assert "12 requests passed its head: it moves" in finding.sentence
    assert finding.cause.kind == "setting"


def test_under_fifty_steps_a_full_pool_is_not() -> None:
    assert found(full_pool(50), "queueing-with-kv-full")
    assert is_healthy(full_pool(49), "queueing-with-kv-full")


def test_a_queue_beside_free_blocks_is_another_matter() -> None:
    assert is_healthy(full_pool(free=7), "queueing-with-kv-full")


def test_a_full_pool_without_a_queue_is_well_used() -> None:
    assert is_healthy(full_pool(waiting=0), "queueing-with-kv-full")


def test_one_request_at_the_head_for_long_is_stuck() -> None:
    log = calm(described())
    own = {"waiting": 3, "free": 0, "stop": StopReason.kv_blocks_chunk, "head_request": 7}
    finding = found(lasting(log, 31, **own), "queueing-with-kv-full")
    assert finding.cause.kind == "undetermined"
    assert finding.severity is Severity.high


# ------------------------------------------------------------------------------------ kv-block-leak


def leaking(seconds: float = 121, **columns: Any) -> LogBuilder:
    return leaking_for(calm(described(kv_connector="P2pConnector")), seconds, **columns)


def leaking_for(log: LogBuilder, seconds: float, **columns: Any) -> LogBuilder:
    own = {"running": 1, "free": 23, "num_blocks_running": 10, "num_blocks_finished": 30}
    return lasting(log, seconds, **(own | columns))


def test_blocks_of_requests_that_have_ended_are_a_leak() -> None:
    finding = found(leaking(), "kv-block-leak")
    assert finding.sentence.startswith("30 of 63 KV blocks are held by nobody who runs or waits")
    assert "30 by requests that have ended" in finding.cause.sentence


def test_two_minutes_are_needed_for_a_leak() -> None:
    assert is_healthy(leaking(119), "kv-block-leak")


def test_blocks_of_running_requests_are_no_leak() -> None:
    assert is_healthy(leaking(num_blocks_running=20), "kv-block-leak")


def test_blocks_that_nobody_accounts_for_are_told() -> None:
    assert "30 by nobody" in found(leaking(num_blocks_finished=0), "kv-block-leak").sentence


def test_an_almost_empty_pool_does_not_leak() -> None:
    assert is_healthy(leaking(free=58, num_blocks_running=0), "kv-block-leak")


def admitted(log: LogBuilder, request: int, num_blocks: int, **columns: Any) -> LogBuilder:
    """Admits a request that can come to hold so many blocks, tokens in flight included."""
    own = {"num_prompt_tokens": 16 * num_blocks - 14, "max_tokens": 10}
    return calm(log.arrived(request, **(own | columns)), 1).admitted(request)


def hidden(log: LogBuilder, seconds: float = 121, **columns: Any) -> LogBuilder:
    """One request runs, and all 40 blocks in use count as its own."""
    own = {
        "running": 1, "free": 23, "num_blocks_running": 40,
        "num_blocks_finished": 0, "num_blocks_deferred_free": 0,
    }  # fmt: skip
    return lasting(log, seconds, **(own | columns))


@pytest.mark.parametrize(("num_blocks", "fires"), [(19, True), (33, True), (34, False)])
def test_a_running_request_holds_no_more_than_its_length(num_blocks: int, fires: bool) -> None:
    log = hidden(admitted(calm(described()), 1, num_blocks))
    assert is_healthy(log, "kv-block-leak") != fires


def test_lost_blocks_are_told_from_those_of_the_request_that_runs() -> None:
    finding = found(hidden(admitted(calm(described()), 1, 30)), "kv-block-leak")
    assert "10 of 63 KV blocks are held by nobody" in finding.sentence
    assert finding.evidence[-1].value == pytest.approx(10 / 63)


def test_a_long_request_that_has_left_hides_no_loss() -> None:
    log = admitted(admitted(calm(described()), 1, 60), 2, 20)
    log.finished(1, num_output_tokens=10)
    assert "20 by nobody" in found(hidden(log), "kv-block-leak").sentence


def test_a_request_that_ended_early_held_no_more_than_it_wrote() -> None:
    log = admitted(calm(described()), 1, 20, max_tokens=900)
    hidden(log).finished(1, num_output_tokens=10)
    assert "20 by nobody" in found(log, "kv-block-leak").sentence


def test_a_request_of_which_no_arrival_is_known_may_hold_them_all() -> None:
    assert is_healthy(hidden(admitted(calm(described()), 1, 20), running=2), "kv-block-leak")


def test_a_streaming_request_may_grow() -> None:
    log = admitted(calm(described()), 1, 20, session="s")
    assert is_healthy(hidden(log), "kv-block-leak")


@pytest.mark.parametrize("holder", ["num_blocks_finished", "num_blocks_deferred_free"])
def test_fewer_blocks_than_half_that_somebody_accounts_for_are_no_loss(holder: str) -> None:
    columns = {"num_blocks_running": 30, holder: 10}
    log = hidden(admitted(calm(described()), 1, 30), **columns)
    assert is_healthy(log, "kv-block-leak")


@pytest.mark.parametrize("holder", ["num_blocks_finished", "num_blocks_deferred_free"])
def test_nothing_is_called_lost_that_an_unknown_holder_may_have(holder: str) -> None:
    log = hidden(admitted(calm(described()), 1, 30), **{holder: None})
    assert is_healthy(log, "kv-block-leak")


@pytest.mark.parametrize(("seconds", "fires"), [(119, False), (121, True)])
def test_a_leak_is_timed_wherever_it_begins(seconds: float, fires: bool) -> None:
    log = lasting(described(), 47)
    for _ in range(2):
        lasting(leaking_for(log, seconds), 20)
    assert is_healthy(log, "kv-block-leak") != fires


# ------------------------------------------------------------------------- priority-recompute-churn


def churn(times: int = 4, num_victims: int = 3, **event: Any) -> LogBuilder:
    log = described(policy="priority")
    for request in range(20):
        log.arrived(request, priority=9 if request >= 10 else 0)
    calm(log)
    own = {"cause": PreemptionCause.priority, "victim_priority": 9, "beneficiary_priority": 0}
    for _ in range(times):
        for victim in range(10, 10 + num_victims):
            preempting_step(log, [victim], **(own | event))
            steps(log, 1, waiting=1)
            log.resumed(victim, hit=0, num_scheduled_tokens=40).caught_up(victim)
    return calm(log)


def test_the_same_victims_again_and_again_are_churn() -> None:
    finding = found(churn(), "priority-recompute-churn")
    assert finding.cause.kind == "priority_churn"
    assert finding.evidence[0].value == 12
    assert finding.affected[0].times == 4


def test_fewer_than_ten_evictions_are_none() -> None:
    assert is_healthy(churn(3, 3), "priority-recompute-churn")


def test_many_victims_once_each_are_none() -> None:
    assert is_healthy(churn(2, 8), "priority-recompute-churn")


def test_evictions_among_equals_are_another_rule() -> None:
    assert is_healthy(churn(cause=PreemptionCause.kv_full), "priority-recompute-churn")


# ------------------------------------------------------------------------- guard-kv-high-healthy


def test_a_nearly_full_pool_that_harms_nobody_is_annotated() -> None:
    verdict = judge(steps(described(), 40, free=6), "guard-kv-high-healthy")
    assert isinstance(verdict, Suppressed)
    assert "KV up to 90.5 %" in verdict.number


def test_a_pool_that_fills_says_when_it_will_be_full() -> None:
    log = described()
    for free in (6, 5, 4, 3):
        steps(log, 10, free=free)
    verdict = judge(log, "guard-kv-high-healthy")
    assert isinstance(verdict, Suppressed)
    assert "full in" in verdict.number


@pytest.mark.parametrize("columns", [{"free": 7}, {"free": 6, "waiting": 1}])
def test_with_room_or_with_a_queue_it_says_nothing(columns: dict[str, int]) -> None:
    log = described()
    for _ in range(40):
        steps(log, 1, free=columns["free"], waiting=columns.get("waiting", 0))
    assert "guard-kv-high-healthy" not in verdicts(log)
