"""Rules about what steps are spent on: prompts, drafts, bitmasks, priorities, loads, hangs."""

from __future__ import annotations

from typing import Any

from diagnose.finding import Severity
from telemetry.vocabulary import Phase, StopReason, ZeroReason
from tests.diagnose.step_rules.states import (
    SECOND,
    EventKind,
    LogBuilder,
    calm,
    described,
    found,
    is_healthy,
    lasting,
    missing,
    steps,
)
from tests.telemetry.log_builder import MS

# ----------------------------------------------------------------------------- prefill-head-of-line


def owned(number: int = 12, engine: dict[str, Any] | None = None, **columns: Any) -> LogBuilder:
    settings = '{"scheduler": {"long_prefill_token_threshold": 0}}'
    log = described(**({"settings": settings} | (engine or {})))
    own = {
        "running": 5, "waiting": 4, "free": 30, "tokens": 2048, "top_request": 9,
        "top_request_tokens": 2000, "stop": StopReason.token_budget, "num_zero_requests": 0,
    }  # fmt: skip
    return calm(steps(calm(log), number, **(own | columns)))


def test_one_prompt_that_takes_the_budget_holds_others_up() -> None:
    finding = found(owned(), "prefill-head-of-line")
    assert "request 9" in finding.sentence
    action = finding.actions[0]
    assert (action.flag, action.old, action.new) == (
        "--long-prefill-token-threshold", "0", "1024",
    )  # fmt: skip


def test_ten_such_steps_are_needed() -> None:
    assert found(owned(10), "prefill-head-of-line")
    assert is_healthy(owned(9), "prefill-head-of-line")


def test_a_budget_that_several_share_has_no_owner() -> None:
    assert is_healthy(owned(top_request_tokens=1800), "prefill-head-of-line")


def test_nobody_held_up_is_no_fault() -> None:
    assert is_healthy(owned(waiting=0), "prefill-head-of-line")


def test_with_a_full_pool_it_is_blocks() -> None:
    assert is_healthy(owned(free=9), "prefill-head-of-line")


def test_a_cap_that_is_set_is_not_advised() -> None:
    capped = {"settings": '{"scheduler": {"long_prefill_token_threshold": 512}}'}
    assert [a.flag for a in found(owned(engine=capped), "prefill-head-of-line").actions] == [None]


def test_without_the_owner_of_the_tokens_it_is_not_measured() -> None:
    log = steps(described(), 40)
    assert missing(log, "prefill-head-of-line") == ("steps.top_request_tokens",)


# ---------------------------------------------------------------------------- prefill-stalls-decode


def stalled(
    mixed_ns: int = 50 * MS, number: int = 60, num_calm: int = 60, **columns: Any
) -> LogBuilder:
    log = described()
    own = {"num_decode_requests": 8}
    for _ in range(2):
        log.step_ns = 10 * MS
        steps(log, num_calm // 2, **own)
        log.step_ns = mixed_ns
        prompts = {"tokens": 1032, "num_prefill_tokens": 1024, "num_decode_tokens": 8}
        steps(log, number // 2, **(own | prompts | columns))
    log.step_ns = 10 * MS
    return steps(log, 1, **own)


def test_answers_that_crawl_beside_prompts_are_found() -> None:
    finding = found(stalled(), "prefill-stalls-decode")
    assert round(finding.evidence[0].value or 0, 2) == 0.2
    assert finding.actions[0].new == "1024"


def test_sixty_per_cent_of_the_rate_are_allowed() -> None:
    assert is_healthy(stalled(16 * MS, number=200), "prefill-stalls-decode")
    assert found(stalled(18 * MS, number=200), "prefill-stalls-decode")


def test_a_stall_lasts_a_second_and_all_of_them_two() -> None:
    assert found(stalled(number=46), "prefill-stalls-decode")
    assert is_healthy(stalled(number=44), "prefill-stalls-decode")


def test_prompts_of_a_step_each_stall_nobody() -> None:
    log = described()
    for _ in range(100):
        log.step_ns = 10 * MS
        steps(log, 2, num_decode_requests=8)
        log.step_ns = 50 * MS
        prompts = {"tokens": 1032, "num_prefill_tokens": 1024, "num_decode_tokens": 8}
        steps(log, 1, num_decode_requests=8, **prompts)
    assert is_healthy(log, "prefill-stalls-decode")


def test_stalls_that_are_a_small_part_of_the_time_are_left_alone() -> None:
    log = stalled(number=46)
    log.step_ns = 100 * MS
    assert is_healthy(steps(log, 400, num_decode_requests=8), "prefill-stalls-decode")


def test_without_calm_steps_it_is_not_measured() -> None:
    assert missing(stalled(num_calm=20), "prefill-stalls-decode") == (
        "steps.num_decode_requests",
    )  # fmt: skip


def test_steps_that_recompute_are_left_out() -> None:
    log = stalled(num_recomputed_tokens=500)
    assert is_healthy(log, "prefill-stalls-decode")


# ------------------------------------------------------------------------- spec-decode-unprofitable


def drafted(
    accepted: int = 1, draft_ns: int = 20 * MS, num_plain: int = 30, number: int = 30
) -> LogBuilder:
    log = described(num_speculative_tokens=4)
    own = {"num_decode_requests": 8, "running": 8}
    log.step_ns = 10 * MS
    steps(log, num_plain, num_draft_tokens=0, num_placed=0, num_accepted=0, **own)
    log.step_ns = draft_ns
    with_drafts = {"num_draft_tokens": 32, "num_placed": 32, "num_accepted": accepted}
    steps(log, number, tokens=40, num_decode_tokens=8, **(own | with_drafts))
    return steps(log, 1, num_draft_tokens=0, num_placed=0, num_accepted=0, **own)


def test_drafts_that_cost_more_than_they_bring_are_found() -> None:
    finding = found(drafted(), "spec-decode-unprofitable")
    assert round(finding.evidence[0].value or 0, 2) == 0.56
    assert finding.confidence.level == "high"


def test_drafts_that_are_still_made_are_open_and_those_of_long_ago_are_not() -> None:
    assert found(drafted(), "spec-decode-unprofitable").is_open
    plain = {"num_draft_tokens": 0, "num_placed": 0, "num_accepted": 0}
    later = lasting(drafted(), 31, running=0, **plain)
    assert not found(later, "spec-decode-unprofitable").is_open


def test_low_acceptance_that_pays_is_fine() -> None:
    assert is_healthy(drafted(accepted=4, draft_ns=10 * MS), "spec-decode-unprofitable")


def test_high_acceptance_that_does_not_pay_is_found() -> None:
    finding = found(drafted(accepted=16, draft_ns=40 * MS), "spec-decode-unprofitable")
    assert finding.evidence[1].value == 0.5


def test_without_steps_to_compare_with_acceptance_decides() -> None:
    few = drafted(accepted=3, num_plain=0, number=40)
    assert found(few, "spec-decode-unprofitable").confidence.level == "medium"
    assert is_healthy(drafted(accepted=8, num_plain=0, number=40), "spec-decode-unprofitable")


def test_too_few_drafts_are_not_judged() -> None:
    log = drafted(num_plain=0, number=10)
    assert missing(log, "spec-decode-unprofitable") == ("steps.num_accepted",)


# -------------------------------------------------------------------------------- grammar-step-cost


def masked(bitmask_ns: int | None, number: int = 60) -> LogBuilder:
    log = calm(described()).arrived(1, grammar_key="g1")
    return calm(steps(log, number, bitmask_ns=bitmask_ns, sample_ns=MS // 10))


def test_bitmasks_that_take_a_tenth_of_the_steps_are_found() -> None:
    finding = found(masked(MS), "grammar-step-cost")
    assert round(finding.evidence[0].value or 0, 3) == 0.111


def test_cheap_bitmasks_are_fine() -> None:
    assert is_healthy(masked(MS // 2), "grammar-step-cost")


def test_fifty_steps_with_bitmasks_are_needed() -> None:
    assert is_healthy(masked(MS, 49), "grammar-step-cost")


def test_bitmasks_that_are_not_timed_are_not_measured() -> None:
    assert missing(masked(None), "grammar-step-cost") == ("steps.bitmask_ns",)


# ------------------------------------------------------------------------------- priority-inversion


def inverted(seconds: float = 2, *, urgent: int = 0, policy: str = "priority") -> LogBuilder:
    log = described(policy=policy, max_num_seqs=1)
    log.arrived(0, priority=5)
    steps(log, 1, running=1, num_zero_requests=0)
    log.admitted(0).first_token(0).arrived(1, priority=urgent)
    lasting(log, seconds, running=1, waiting=1, head_request=1, stop=StopReason.max_num_seqs)
    log.finished(0)
    steps(log, 5, running=1)
    return calm(log.admitted(1).first_token(1).finished(1))


def test_an_urgent_request_behind_a_less_urgent_one_is_inverted() -> None:
    finding = found(inverted(), "priority-inversion")
    assert "request 1 (priority 0)" in finding.sentence
    assert finding.affected[0].request == 1


def test_one_second_is_needed() -> None:
    assert is_healthy(inverted(0.8), "priority-inversion")


def test_equal_priorities_are_not_inverted() -> None:
    assert is_healthy(inverted(urgent=5), "priority-inversion")


def test_without_priorities_nothing_is_inverted() -> None:
    assert is_healthy(inverted(policy="fcfs"), "priority-inversion")


# --------------------------------------------------------------------------------- offload-overhead


def loading(load_ns: int = 200 * MS, number: int = 20, **columns: Any) -> LogBuilder:
    log = described(kv_connector="OffloadConnector")
    own = {"num_prefill_tokens": 100, "tokens": 100, "free": 40}
    steps(log, 20, **(own | columns))
    for request in range(number):
        log.arrived(request).event(EventKind.load_started, request, num_tokens=100)
        log.advance(load_ns).event(EventKind.load_finished, request, num_tokens=100)
        steps(log, 1, **(own | columns))
        log.admitted(request).first_token(request).finished(request)
    return steps(log, 1, **(own | columns))


def test_loads_slower_than_computing_are_found() -> None:
    finding = found(loading(), "offload-overhead")
    assert round(finding.evidence[0].value or 0) == 22


def test_quick_loads_are_fine() -> None:
    assert is_healthy(loading(8 * MS), "offload-overhead")


def test_a_few_late_loads_among_quick_ones_are_fine() -> None:
    log = loading(4 * MS, number=30)
    for request in range(30, 33):
        log.arrived(request).event(EventKind.load_started, request, num_tokens=100)
        log.advance(10_000 * MS).event(EventKind.load_finished, request, num_tokens=100)
        log.admitted(request).first_token(request).finished(request)
    assert is_healthy(log, "offload-overhead")


def test_a_full_pool_may_need_a_slow_tier() -> None:
    assert is_healthy(loading(free=20), "offload-overhead")


def test_twenty_loads_are_needed() -> None:
    assert missing(loading(number=19), "offload-overhead") == ("connector_loads.load_ns",)


def test_without_loads_there_is_no_fault() -> None:
    assert is_healthy(loading(number=0), "offload-overhead")


# -------------------------------------------------------------------------------------- worker-hang


def hanging(age_seconds: float, phase: Phase = Phase.forward) -> LogBuilder:
    log = calm(described())
    log.advance(round(age_seconds * SECOND))
    return log.heartbeat(phase=phase, phase_age_ns=round(age_seconds * SECOND))


def test_a_step_that_does_not_end_hangs() -> None:
    finding = found(hanging(61), "worker-hang")
    assert "in forward for" in finding.sentence
    assert finding.is_open


def test_a_minute_is_needed_for_a_hang() -> None:
    assert is_healthy(hanging(59), "worker-hang")


def test_an_idle_engine_hangs_in_nothing() -> None:
    assert is_healthy(hanging(600, Phase.idle), "worker-hang")


def test_a_step_that_took_a_minute_and_ended_is_told_as_over() -> None:
    log = calm(described())
    log.step_ns = 70 * SECOND
    steps(log, 1)
    log.step_ns = 10 * MS
    finding = found(calm(log.advance(63 * SECOND)), "worker-hang")
    assert not finding.is_open
    assert finding.severity is Severity.critical


# ---------------------------------------------------------------------------- zero-token-not-budget


def still(
    number: int = 60, reason: ZeroReason = ZeroReason.encoder_budget, **columns: Any
) -> LogBuilder:
    log, own = calm(described()), {"num_zero_requests": 1, "running": 2}
    log.step_ns = 20 * MS
    for _ in range(number):
        dense = [{"request": 1, "num_scheduled_tokens": 0, "zero_reason": reason}]
        steps(log, 1, requests=dense, **(own | columns))
    log.step_ns = 10 * MS
    return steps(log, 1, num_zero_requests=0)


def test_a_running_request_that_gets_nothing_is_found_with_what_frees_it() -> None:
    finding = found(still(), "zero-token-not-budget")
    assert "encoder_budget" in finding.sentence
    assert "raise max_num_batched_tokens" in finding.sentence


def test_fifty_steps_and_a_second_are_needed() -> None:
    assert is_healthy(still(49), "zero-token-not-budget")


def test_a_pipelines_rhythm_is_no_fault() -> None:
    assert is_healthy(still(reason=ZeroReason.pipeline_cadence), "zero-token-not-budget")


def test_without_budget_left_it_waits_its_turn() -> None:
    assert is_healthy(still(tokens=2000), "zero-token-not-budget")


def test_without_dense_rows_the_reason_is_not_measured() -> None:
    log = calm(described())
    steps(log, 60, num_zero_requests=1, running=2)
    assert missing(log, "zero-token-not-budget") == ("step_requests.zero_reason",)
