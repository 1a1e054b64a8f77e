from __future__ import annotations

from diagnose.diagnosis import diagnose
from diagnose.finding import Healthy, NotMeasured, Suppressed
from diagnose.window import choose_window
from telemetry.vocabulary import PreemptionCause, StopReason
from tests.diagnose.logs import (
    described,
    finding_of,
    log_of,
    preempting_step,
    pressed,
    steps,
    verdict_of,
)
from tests.telemetry.log_builder import MS

RULE = "kv-preemption-pressure"


def test_over_the_threshold_it_is_found() -> None:
    finding = finding_of(log_of(pressed(num_evicted=20)), RULE)
    per_request = finding.evidence[1]
    assert per_request.value == 0.2
    assert per_request.n == 100


def test_at_the_threshold_it_is_found() -> None:
    assert finding_of(log_of(pressed(num_evicted=10)), RULE).evidence[1].value == 0.1


def test_under_the_threshold_it_is_not() -> None:
    log = log_of(pressed(num_evicted=9, pause_ns=20 * MS))
    assert isinstance(verdict_of(log, RULE), Healthy)


def test_few_evictions_that_freeze_answers_are_pressure() -> None:
    log = log_of(pressed(num_evicted=3, pause_ns=6_000 * MS))
    assert finding_of(log, RULE).rule == RULE


def test_a_request_evicted_more_than_five_times_is_pressure() -> None:
    log = log_of(pressed(num_evicted=1, times=6, pause_ns=20 * MS))
    assert finding_of(log, RULE).evidence[2].value == 6


def test_with_too_few_steps_nothing_is_judged() -> None:
    log = described().arrived(0).arrived(1)
    preempting_step(log, [1])
    verdict = verdict_of(log_of(log), RULE)
    assert isinstance(verdict, NotMeasured)
    assert "20 are needed" in verdict.why


def test_a_source_without_preemptions_is_not_measured() -> None:
    log = described()
    steps(log, 100, num_preempted=None, num_preemptions_total=None)
    verdict = verdict_of(log_of(log), RULE)
    assert isinstance(verdict, NotMeasured)
    assert verdict.missing == ("steps.num_preempted",)


def test_a_full_cache_without_preemptions_is_healthy() -> None:
    log = steps(described(), 300, free=1)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_evictions_by_a_cache_reset_are_not_pressure() -> None:
    log = pressed(num_evicted=32, cause=PreemptionCause.cache_reset, beneficiary=None)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_evictions_with_free_blocks_are_not_pressure() -> None:
    log = pressed(num_evicted=32, num_blocks_needed=1, num_blocks_free_before=30)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_it_stays_open_while_requests_still_wait() -> None:
    log = pressed(num_evicted=20)
    steps(log, 5)
    log.arrived(200)
    preempting_step(log, [200])
    assert finding_of(log_of(log), RULE).is_open


def test_it_clears_with_the_last_preemption_once_the_queue_is_empty() -> None:
    log = pressed(num_evicted=20)
    last = max(row["ts"] for row in log.rows["request_events"] if row.get("cause"))
    assert finding_of(log_of(log), RULE).span.cleared_ts == last


def test_its_id_does_not_depend_on_the_window() -> None:
    log = log_of(pressed(num_evicted=20, num_steps=3000))
    whole = diagnose(log).findings[0]
    part = diagnose(log, choose_window(log, 5_000_000_000)).findings[0]
    assert whole.id == part.id


def test_the_light_guard_silences_it_with_its_number() -> None:
    # 6 of 100 requests, three times each: 0.18 per request, but nobody noticed.
    log = log_of(pressed(num_evicted=6, times=3, pause_ns=20 * MS))
    verdict = verdict_of(log, RULE)
    assert isinstance(verdict, Suppressed)
    assert verdict.by == "guard-light-preemption"
    assert "requests evicted 6.0 %" in verdict.number


def test_a_queue_head_without_blocks_is_no_preemption() -> None:
    log = steps(described(), 200, waiting=3, free=0, stop=StopReason.kv_blocks_whole_prompt)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_advice_never_repeats_a_setting() -> None:
    log = pressed(num_evicted=20)
    log.rows["engines"][0] |= {"watermark": 0.03, "max_num_seqs": 4}
    flags = {action.flag for action in finding_of(log_of(log), RULE).actions}
    assert "--watermark" not in flags
    assert "--max-num-seqs" not in flags


def test_a_flag_the_engine_does_not_record_is_not_advised() -> None:
    log = pressed(num_evicted=20)
    log.rows["engines"][0] |= {"watermark": None}
    flags = {action.flag for action in finding_of(log_of(log), RULE).actions}
    assert "--watermark" not in flags
