"""Runs of the real scheduler, recorded and diagnosed."""

from __future__ import annotations

import pytest

from diagnose.diagnosis import Diagnosis, diagnose
from diagnose.finding import Severity
from tests.diagnose.logs import Arrival, Run, config, run, storm_arrivals


@pytest.fixture(scope="module")
def storm() -> tuple[Run, Diagnosis]:
    recorded = run(config(), storm_arrivals())
    return recorded, diagnose(recorded.log())


def test_a_burst_on_a_small_pool_is_pressure_caused_by_the_burst(
    storm: tuple[Run, Diagnosis],
) -> None:
    _, diagnosis = storm
    finding = diagnosis.findings[0]
    assert diagnosis.verdict.rule == finding.rule == "kv-preemption-pressure"
    assert finding.severity is Severity.high
    assert finding.cause.kind == "burst_of_arrivals"
    assert "0 -> 28 in flight" in finding.cause.sentence
    assert finding.sentence.startswith("The KV pool holds 9 of these requests to their end; 28")


def test_the_account_of_a_storm_equals_the_schedulers_counter(
    storm: tuple[Run, Diagnosis],
) -> None:
    recorded, diagnosis = storm
    account = diagnosis.engines[0].accounting
    assert recorded.num_preemptions >= 60
    assert account.counter == account.num_rows == recorded.num_preemptions
    assert account.unattributed == 0
    assert account.equals_counter


def test_the_tokens_lost_in_a_storm_are_accounted_for(storm: tuple[Run, Diagnosis]) -> None:
    account = storm[1].engines[0].accounting
    assert account.loss.num_lost
    assert account.loss.identity_holds


def test_token_work_adds_up_to_all_scheduled_tokens(storm: tuple[Run, Diagnosis]) -> None:
    work = storm[1].engines[0].accounting.work
    assert work.num_recomputed
    assert work.adds_up


def test_a_storm_that_drained_is_cleared(storm: tuple[Run, Diagnosis]) -> None:
    assert not storm[1].findings[0].is_open


def test_advice_on_a_storm_comes_from_the_run(storm: tuple[Run, Diagnosis]) -> None:
    actions = {action.flag: action for action in storm[1].findings[0].actions}
    slots = actions["--max-num-seqs"]
    assert (slots.old, slots.new) == ("32", "9")
    assert "--gpu-memory-utilization" not in actions
    assert "--scheduler-reserve-full-isl" not in actions  # it is on already


def test_the_same_load_on_an_ample_pool_is_no_fault() -> None:
    recorded = run(config(num_gpu_blocks=512, max_num_seqs=64), storm_arrivals())
    diagnosis = diagnose(recorded.log())
    assert diagnosis.verdict.rule == "no-scheduler-fault"
    assert diagnosis.findings == ()


def test_a_steady_overload_names_the_setting() -> None:
    recorded = run(config(), [Arrival(1 + 7 * i) for i in range(150)])
    finding = diagnose(recorded.log()).findings[0]
    assert finding.cause.kind == "setting"
    assert "max_num_seqs lets in 32" in finding.sentence
    assert any("x the usual rate" in rejected.number for rejected in finding.rejected)


def test_too_few_slots_are_named_and_kv_is_not() -> None:
    recorded = run(config(num_gpu_blocks=512, max_num_seqs=4), storm_arrivals())
    diagnosis = diagnose(recorded.log())
    assert [finding.rule for finding in diagnosis.findings] == ["seq-slot-limit"]
    assert diagnosis.findings[0].actions[0].flag == "--max-num-seqs"


def test_a_request_larger_than_the_pool_is_the_cause_of_the_deadlock() -> None:
    arrivals = [Arrival(1), Arrival(3, num_prompt_tokens=2500, max_tokens=8)]
    recorded = run(config(), [*arrivals, *[Arrival(5)] * 5], max_steps=6000)
    diagnosis = diagnose(recorded.log())
    assert [finding.rule for finding in diagnosis.findings] == [
        "request-exceeds-kv-capacity",
        "admission-deadlock",
    ]
    assert diagnosis.findings[1].cause == diagnosis.findings[0].cause
    assert diagnosis.findings[0].affected[0].request == 1


def test_a_request_that_outgrows_the_pool_thrashes() -> None:
    settings = config(
        num_gpu_blocks=9,
        block_size=16,
        enable_prefix_caching=False,
        scheduler_reserve_full_isl=False,
        max_num_batched_tokens=64,
    )
    recorded = run(settings, [Arrival(1, num_prompt_tokens=100, max_tokens=64)], max_steps=300)
    diagnosis = diagnose(recorded.log())
    rules = [finding.rule for finding in diagnosis.findings]
    assert rules == ["request-exceeds-kv-capacity", "kv-preemption-thrash"]
    assert diagnosis.engines[0].accounting.loss.identity_holds


def test_priority_evictions_are_told_apart() -> None:
    arrivals = [Arrival(1, priority=5) for _ in range(8)]
    arrivals += [Arrival(60 + i, priority=0) for i in range(12)]
    recorded = run(config(policy="priority"), arrivals)
    account = diagnose(recorded.log()).engines[0].accounting
    assert account.num_priority > 0
    assert account.num_priority + account.num_kv_full == recorded.num_preemptions
    assert account.loss.identity_holds
