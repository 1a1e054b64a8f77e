from __future__ import annotations

import pytest

from diagnose.finding import Finding, Healthy, NotMeasured, Suppressed
from tests.diagnose.logs import (
    described,
    finding_of,
    log_of,
    preempting_step,
    pressed,
    steps,
    verdict_of,
)
from tests.telemetry.log_builder import LogBuilder

RULE = "kv-preemption-thrash"


def looping(times: int, *, progress: int = 0, **engine: object) -> LogBuilder:
    """One request that is evicted again and again, `progress` tokens further each time."""
    log = described(**engine).arrived(0).arrived(1)  # type: ignore[arg-type]
    steps(log, 50)
    for nth in range(times):
        kept = 3 + nth * progress
        preempting_step(log, [1], lost=80 + nth * progress, num_output_tokens_kept=kept)
        steps(log, 3, waiting=0)
    return log


def test_three_evictions_without_progress_are_thrash() -> None:
    finding = finding_of(log_of(looping(3)), RULE)
    assert finding.evidence[0].value == 3
    assert finding.evidence[1].value == 1.0


def test_two_evictions_are_not() -> None:
    assert isinstance(verdict_of(log_of(looping(2)), RULE), Healthy)


def test_evictions_with_a_token_of_progress_are_not() -> None:
    assert isinstance(verdict_of(log_of(looping(6, progress=1)), RULE), Healthy)


def returning(lost: list[int]) -> LogBuilder:
    """One request that has computed so many tokens at each of its evictions."""
    log = steps(described().arrived(0).arrived(1), 50)
    for tokens in lost:
        preempting_step(log, [1], lost=tokens, num_output_tokens_kept=0)
        steps(log, 3, waiting=0)
    return log


def test_one_return_that_got_further_ends_no_loop() -> None:
    finding = finding_of(log_of(returning([80, 80, 80, 96, 96, 96])), RULE)
    assert finding.evidence[0].value == 6
    assert finding.evidence[1].value == 0.8


@pytest.mark.parametrize(
    ("lost", "is_thrash"),
    [
        ([80, 80, 80], True),
        ([80, 96, 96], False),  # two evictions at one point are none yet
        ([80, 80, 80, 80, 96], True),
        ([80, 80, 96, 96, 112], False),  # two of four returns were in vain
    ],
)
def test_a_request_loops_if_nearly_all_of_its_returns_were_in_vain(
    lost: list[int], is_thrash: bool
) -> None:
    assert isinstance(verdict_of(log_of(returning(lost)), RULE), Finding) is is_thrash


def test_pressure_with_progress_is_not_thrash() -> None:
    assert isinstance(verdict_of(log_of(pressed(num_evicted=20, times=4)), RULE), Healthy)


def test_one_loop_among_many_evictions_with_progress_is_not() -> None:
    log = pressed(num_evicted=20, times=3)
    for _ in range(3):
        preempting_step(log, [3], lost=30)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_without_progress_recorded_it_is_not_measured() -> None:
    log = pressed(num_evicted=5, times=3, num_computed_tokens_lost=None)
    verdict = verdict_of(log_of(log), RULE)
    assert isinstance(verdict, NotMeasured)
    assert verdict.missing == ("request_events.num_computed_tokens_lost",)


def test_without_preemption_counts_it_is_not_measured() -> None:
    log = steps(described(), 50, num_preempted=None, num_preemptions_total=None)
    assert isinstance(verdict_of(log_of(log), RULE), NotMeasured)


def test_without_preemptions_it_is_healthy() -> None:
    assert isinstance(verdict_of(log_of(steps(described(), 50)), RULE), Healthy)


def test_it_silences_pressure() -> None:
    log = log_of(looping(8))
    pressure = verdict_of(log, "kv-preemption-pressure")
    assert isinstance(pressure, Suppressed)
    assert pressure.by == RULE


def test_admission_on_one_chunk_is_named_as_the_cause() -> None:
    finding = finding_of(log_of(looping(4, reserve_full_prompt=False)), RULE)
    assert finding.cause.kind == "setting"
    assert finding.actions[0].flag == "--scheduler-reserve-full-isl"


def test_a_cache_that_is_on_is_not_advised() -> None:
    on = finding_of(log_of(looping(4, enable_prefix_caching=True)), RULE)
    off = finding_of(log_of(looping(4, enable_prefix_caching=False)), RULE)
    assert isinstance(on, Finding)
    assert "--enable-prefix-caching" not in {action.flag for action in on.actions}
    assert "--enable-prefix-caching" in {action.flag for action in off.actions}
