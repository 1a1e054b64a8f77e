from __future__ import annotations

import pytest

from diagnose.diagnosis import diagnose
from diagnose.finding import Finding, Severity
from diagnose.window import choose_window
from tests.diagnose.logs import described, log_of, pressed, steps
from tests.telemetry.log_builder import MS, LogBuilder

RULE = "guard-light-preemption"


def light(log: LogBuilder) -> Finding | None:
    memory = log_of(log)
    found = [f for f in diagnose(memory, choose_window(memory)).findings if f.rule == RULE]
    return found[0] if found else None


def test_few_evictions_that_nobody_felt_are_information() -> None:
    finding = light(pressed(num_evicted=5, pause_ns=20 * MS))
    assert finding is not None
    assert finding.severity is Severity.info


@pytest.mark.parametrize(
    ("evicted", "times", "pause_ns", "is_light"),
    [
        (9, 1, 20 * MS, True),
        (10, 1, 20 * MS, False),
        (1, 5, 20 * MS, True),
        (1, 6, 20 * MS, False),
        (5, 1, 25 * MS, True),
        (5, 1, 26 * MS, False),
    ],
)
def test_each_limit(evicted: int, times: int, pause_ns: int, is_light: bool) -> None:
    log = pressed(num_evicted=evicted, times=times, pause_ns=pause_ns)
    assert (light(log) is not None) is is_light


def test_without_preemptions_it_says_nothing() -> None:
    assert light(steps(described(), 100)) is None


def test_pauses_that_are_not_recorded_are_named() -> None:
    log = pressed(num_evicted=5)
    for row in log.rows["request_finishes"]:
        row["max_itl_ns"] = None
    finding = light(log)
    assert finding is not None
    assert finding.missing == ("request_finishes.max_itl_ns",)
    assert finding.confidence.level == "medium"


def test_the_verdict_is_no_fault_and_tells_of_it() -> None:
    diagnosis = diagnose(log_of(pressed(num_evicted=5, pause_ns=20 * MS)))
    assert diagnosis.verdict.rule == "no-scheduler-fault"
    assert diagnosis.verdict.sentence.startswith("5 of 100 requests were evicted")
