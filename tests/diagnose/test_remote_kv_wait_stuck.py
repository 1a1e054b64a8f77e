"""Requests that wait for KV from elsewhere, on runs whose connector stalls on demand."""

from __future__ import annotations

from diagnose.diagnosis import diagnose
from diagnose.finding import Healthy, Severity
from telemetry.vocabulary import EventKind, FinishReason
from tests.diagnose.injected import NUM_REQUESTS, SECOND, found, injected, judged
from tests.diagnose.logs import config, described, log_of, run, steps, storm_arrivals

RULE = "remote-kv-wait-stuck"


def test_loads_that_hang_are_found_with_whom_and_what_they_hold() -> None:
    finding = found(injected("load=stall:n=4"), RULE)
    numbers = dict(finding.impact.numbers)
    assert finding.is_open
    assert finding.severity is Severity.critical
    assert (numbers["num_waiting"], numbers["num_blocks"]) == (4, 4 * 2)
    assert numbers["stuck_ns"] is not None
    assert numbers["stuck_ns"] >= 390 * SECOND
    assert finding.evidence[3].value == NUM_REQUESTS - 4  # the others came
    assert len(finding.affected) == 4
    assert "began at one moment" in finding.cause.sentence


def test_it_is_the_verdict_of_a_run_in_which_nothing_else_is_wrong() -> None:
    assert diagnose(injected("load=stall:n=4")).verdict.rule == RULE


def test_a_look_up_without_answer_is_a_wait_too() -> None:
    finding = found(injected("lookup=stall:n=4", stores=False), RULE)
    numbers = dict(finding.impact.numbers)
    assert (numbers["num_waiting"], numbers["num_blocks"]) == (4, 0)
    assert finding.is_open


def test_two_minutes_are_not_reached_and_nothing_is_said() -> None:
    verdict = judged(injected("load=stall:n=4", seconds=100), RULE)
    assert isinstance(verdict, Healthy)
    assert "2 loads came" in verdict.number


def test_a_connector_that_is_slow_and_brings_everything_is_no_fault() -> None:
    """Loads take 100 s each, and the last has taken 200 so far."""
    log = described(kv_connector="SlowConnector")
    for request in range(6):
        log.arrived(request)
        steps(log, 1, waiting=1)
        log.event(EventKind.load_started, request=request, num_tokens=64, num_blocks=4)
        log.advance(100 * SECOND)
        if request < 5:
            log.event(EventKind.load_finished, request=request)
    log.advance(100 * SECOND)
    verdict = judged(log_of(steps(log, 1, waiting=1)), RULE)
    assert isinstance(verdict, Healthy)
    assert verdict.number == "5 loads came, longest wait 3 min 20 s"


def test_loads_that_end_when_their_clients_leave_did_not_come() -> None:
    """Six requests wait for 130 s; then their clients leave, which ends their loads."""
    log = described(kv_connector="SlowConnector")
    for request in range(6):
        log.arrived(request)
        steps(log, 1, waiting=1)
        log.event(EventKind.load_started, request=request, num_tokens=64, num_blocks=4)
    log.advance(130 * SECOND)
    for request in range(6):
        log.finished(request, FinishReason.abort_client)
        log.event(EventKind.load_finished, request=request)
    finding = found(log_of(steps(log, 1, waiting=0)), RULE)
    assert dict(finding.impact.numbers)["num_waiting"] == 0
    assert "0 other loads came" in finding.sentence


def test_a_time_out_ends_the_wait() -> None:
    log = injected("load=stall", load_timeout_seconds=30.0)
    assert isinstance(judged(log, RULE), Healthy)


def test_a_sound_connector_is_healthy() -> None:
    verdict = judged(injected(), RULE)
    assert isinstance(verdict, Healthy)
    assert f"{NUM_REQUESTS} loads came" in verdict.number


def test_without_a_connector_nobody_waits_for_one() -> None:
    verdict = judged(run(config(), storm_arrivals()).log(), RULE)
    assert isinstance(verdict, Healthy)
    assert verdict.number == "no connector"
