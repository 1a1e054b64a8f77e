"""Loads that fail, on runs whose connector fails on demand."""

from __future__ import annotations

import pytest

from diagnose.finding import Healthy, Severity
from tests.diagnose.injected import NUM_REQUESTS, PROMPT_TOKENS, found, injected, judged
from tests.diagnose.logs import config, run, storm_arrivals

RULE = "kv-load-failure"


def test_loads_that_fail_as_a_whole_are_computed_here() -> None:
    finding = found(injected("load=fail:n=4", seconds=20), RULE)
    numbers = dict(finding.impact.numbers)
    assert finding.severity is Severity.high
    assert (numbers["num_failed"], numbers["num_timed_out"]) == (4, 0)
    assert numbers["num_tokens"] == 4 * PROMPT_TOKENS
    assert (numbers["num_errors"], finding.num_affected) == (0, 4)
    assert "and were computed here" in finding.sentence


def test_of_a_load_that_fails_half_way_the_other_half_is_missing() -> None:
    finding = found(injected("load=fail_half:n=3", seconds=20), RULE)
    assert dict(finding.impact.numbers)["num_tokens"] == 3 * PROMPT_TOKENS // 2
    assert finding.evidence[3].value == 3  # blocks


def test_under_the_policy_fail_requests_end_with_an_error() -> None:
    finding = found(injected("load=fail:n=2", seconds=20, policy="fail"), RULE)
    numbers = dict(finding.impact.numbers)
    assert (numbers["num_failed"], numbers["num_errors"]) == (2, 2)
    assert "2 requests ended with an error" in finding.sentence


def test_loads_that_were_given_up_are_counted_apart() -> None:
    finding = found(injected("load=stall:n=5", load_timeout_seconds=20.0), RULE)
    numbers = dict(finding.impact.numbers)
    assert (numbers["num_failed"], numbers["num_timed_out"]) == (0, 5)
    assert numbers["num_tokens"] == 5 * PROMPT_TOKENS
    assert finding.cause.kind == "stuck_loads"


@pytest.mark.parametrize("fault", [(), ("save=fail",), ("lookup=fail",), ("ack=lose",)])
def test_what_is_no_failed_load_is_no_fault(fault: tuple[str, ...]) -> None:
    assert isinstance(judged(injected(*fault, seconds=20, step_seconds=1.0), RULE), Healthy)


def test_a_sound_connector_is_healthy_with_its_number() -> None:
    verdict = judged(injected(seconds=20), RULE)
    assert isinstance(verdict, Healthy)
    assert verdict.number == f"0, {NUM_REQUESTS} loads came"


def test_without_a_connector_no_load_fails() -> None:
    verdict = judged(run(config(), storm_arrivals()).log(), RULE)
    assert isinstance(verdict, Healthy)
    assert verdict.number == "no connector"
