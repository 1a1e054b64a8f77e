from __future__ import annotations

from typing import Any

from diagnose.finding import Healthy, NotMeasured, Severity
from telemetry.vocabulary import StopReason
from tests.diagnose.logs import described, finding_of, log_of, steps, verdict_of
from tests.telemetry.log_builder import MS, LogBuilder

RULE = "seq-slot-limit"


def queued(
    number: int = 100,
    *,
    engine: dict[str, Any] | None = None,
    step_ns: int = 110 * MS,
    apart_ns: int = 300 * MS,
    **columns: Any,
) -> LogBuilder:
    """Four run, six wait for a slot for `number` steps."""
    log = described(**({"max_num_seqs": 4} | (engine or {})))
    log.step_ns = step_ns
    for request in range(10):
        log.arrived(request, num_prompt_tokens=16, max_tokens=16).advance(apart_ns)
    own = {"running": 4, "waiting": 6, "free": 50, "stop": StopReason.max_num_seqs}
    steps(log, 1, **(own | columns))
    for request in range(4):
        log.admitted(request).first_token(request)
    steps(log, number - 1, **(own | columns))
    for request in range(4):
        log.finished(request)
    steps(log, 20, running=6)
    for request in range(4, 10):
        log.admitted(request).first_token(request).finished(request)
    return steps(log, 5, running=0, tokens=0)


def test_full_slots_with_free_blocks_are_the_limit() -> None:
    finding = finding_of(log_of(queued()), RULE)
    assert finding.cause.kind == "setting"
    assert "max_num_seqs is 4" in finding.cause.sentence


def test_at_fifty_steps_it_is_found() -> None:
    assert finding_of(log_of(queued(50)), RULE).evidence[0].n == 50


def test_under_fifty_steps_it_is_not() -> None:
    assert isinstance(verdict_of(log_of(queued(49)), RULE), Healthy)


def test_five_seconds_are_needed() -> None:
    assert isinstance(verdict_of(log_of(queued(step_ns=40 * MS)), RULE), Healthy)


def test_a_backlog_that_came_at_once_is_for_information() -> None:
    finding = finding_of(log_of(queued(apart_ns=10 * MS)), RULE)
    assert finding.severity is Severity.info
    assert "a backlog is meant to queue" in finding.sentence
    assert finding_of(log_of(queued()), RULE).severity is Severity.medium


def test_with_a_full_pool_slots_are_not_the_limit() -> None:
    assert isinstance(verdict_of(log_of(queued(free=9)), RULE), Healthy)


def test_a_pool_just_under_the_limit_leaves_it() -> None:
    assert finding_of(log_of(queued(free=10)), RULE).evidence[1].value < 0.85


def test_without_progress_it_is_a_hang_and_no_limit() -> None:
    assert isinstance(verdict_of(log_of(queued(tokens=0)), RULE), Healthy)


def test_full_slots_without_a_queue_are_fine() -> None:
    log = steps(described(max_num_seqs=4), 200, running=4, stop=StopReason.queue_empty)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_a_queue_for_another_reason_is_not_for_slots() -> None:
    log = queued(stop=StopReason.token_budget)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_without_stop_reasons_it_is_not_measured() -> None:
    log = steps(described(), 100, stop=None)  # type: ignore[arg-type]
    verdict = verdict_of(log_of(log), RULE)
    assert isinstance(verdict, NotMeasured)
    assert verdict.missing == ("steps.stop_reason",)


def test_without_the_pools_size_it_is_not_measured() -> None:
    verdict = verdict_of(log_of(queued(engine={"num_usable_blocks": None})), RULE)
    assert isinstance(verdict, NotMeasured)


def test_more_slots_than_the_pool_holds_are_not_advised() -> None:
    log = queued(engine={"num_usable_blocks": 8}, free=5)
    finding = finding_of(log_of(log), RULE)
    assert finding.actions[0].flag is None


def test_slots_are_raised_no_further_than_needed() -> None:
    action = finding_of(log_of(queued()), RULE).actions[0]
    assert (action.flag, action.old, action.new) == ("--max-num-seqs", "4", "10")


def test_a_lower_active_limit_is_the_one_to_raise() -> None:
    log = queued(
        engine={"max_num_seqs": 32, "max_num_active_seqs": 4},
        stop=StopReason.max_num_active_seqs,
    )
    finding = finding_of(log_of(log), RULE)
    assert finding.actions[0].flag == "--max-num-active-seqs"


def test_it_clears_when_the_queue_is_gone() -> None:
    assert not finding_of(log_of(queued()), RULE).is_open
