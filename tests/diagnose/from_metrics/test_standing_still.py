"""Deadlocks, hangs and queues, judged by scrapes alone."""

from __future__ import annotations

import pytest

from diagnose.diagnosis import diagnose
from diagnose.finding import Finding, Healthy, NotMeasured, Severity, Suppressed
from tests.diagnose.logs import finding_of, log_of, verdict_of
from tests.diagnose.scrapes import calm, scraped, steady
from tests.telemetry.log_builder import LogBuilder

DEADLOCK, HANG = "admission-deadlock", "worker-hang"
NOTHING = {"gen_tps": steady(8, 0), "prompt_tps": steady(8, 0), "finished": steady(8, 0)}


def stuck(**series: object) -> LogBuilder:
    """Nobody runs, five wait, no token."""
    own = {"running": steady(8, 0), "waiting": steady(8, 5), "kv": steady(8, 0.0)}
    return calm(**(NOTHING | own | series))  # type: ignore[arg-type]


def hung(**series: object) -> LogBuilder:
    """Two run; tokens came until the third scrape."""
    own = {"running": steady(12, 2), "gen_tps": [25, 25, 25, *steady(9, 0)]}
    own |= {"prompt_tps": steady(12, 0), "finished": steady(12, 0), "waiting": steady(12, 1)}
    return calm(12, **(own | series))  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------- deadlock


def test_nobody_runs_and_somebody_waits_is_a_deadlock() -> None:
    finding = finding_of(log_of(stuck()), DEADLOCK)
    assert finding.severity is Severity.critical
    assert finding.is_open
    assert finding.sentence.startswith("Nothing ran for 70.0 s while 5 requests waited")


@pytest.mark.parametrize(("interval_s", "fires"), [(4, False), (5, True)])
def test_a_deadlock_takes_half_a_minute(interval_s: float, fires: bool) -> None:
    log = stuck(interval_s=interval_s, running=steady(7, 0), waiting=steady(7, 5))
    assert isinstance(verdict_of(log_of(log), DEADLOCK), Finding) == fires


@pytest.mark.parametrize(
    "change",
    [{"running": steady(8, 1)}, {"waiting": steady(8, 0)}, {"prompt_tps": steady(8, 3)}],
    ids=("one runs", "nobody waits", "prompts are computed"),
)
def test_a_look_alike_is_no_deadlock(change: dict[str, list[float]]) -> None:
    assert isinstance(verdict_of(log_of(stuck(**change)), DEADLOCK), Healthy)


def test_a_deadlock_that_ended_is_cleared() -> None:
    log = stuck(running=[0, 0, 0, 0, 0, 4, 4, 4], gen_tps=[0, 0, 0, 0, 0, 100, 100, 100])
    assert not finding_of(log_of(log), DEADLOCK).is_open


def test_a_deadlock_says_who_is_set_aside() -> None:
    settings = {"kv_connector": "NixlConnector"}
    log = stuck(deferred=steady(8, 4), capacity=steady(8, 1), settings=settings)
    finding = finding_of(log_of(log), DEADLOCK)
    assert "4 set aside (NixlConnector)" in finding.sentence
    assert finding.cause.kind == "undetermined"


def test_without_tokens_a_deadlock_is_not_measured() -> None:
    log = scraped(running=steady(8, 0), waiting=steady(8, 5))
    verdict = verdict_of(log_of(log), DEADLOCK)
    assert isinstance(verdict, NotMeasured)
    assert verdict.missing == ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")


def test_a_pool_smaller_than_max_model_len_explains_a_deadlock() -> None:
    small = {"max_model_len": 2048, "block_size": 16, "num_usable_blocks": 63}
    diagnosis = diagnose(log_of(stuck(settings=small, capacity=steady(8, 5))))
    rules = [finding.rule for finding in diagnosis.findings]
    assert rules == ["request-exceeds-kv-capacity", DEADLOCK]
    assert diagnosis.findings[1].cause.kind == "oversized_request"


@pytest.mark.parametrize(
    "change",
    [
        {"kv": steady(8, 0.2)},
        {"deferred": steady(8, 5), "capacity": steady(8, 0)},
        {"settings": {"max_model_len": 1008, "block_size": 16, "num_usable_blocks": 63}},
    ],
    ids=("blocks are held", "set aside", "everything fits"),
)
def test_a_look_alike_of_an_oversized_request(change: dict[str, object]) -> None:
    small = {"max_model_len": 2048, "block_size": 16, "num_usable_blocks": 63}
    log = stuck(**({"settings": small} | change))
    assert not isinstance(verdict_of(log_of(log), "request-exceeds-kv-capacity"), Finding)


# ------------------------------------------------------------------------------------------- hang


def test_tokens_that_stop_while_requests_run_are_a_hang() -> None:
    finding = finding_of(log_of(hung()), HANG)
    assert finding.severity is Severity.critical
    assert finding.sentence.startswith("2 running requests got no token for 90.0 s")


@pytest.mark.parametrize(("interval_s", "fires"), [(6, False), (7, True)])
def test_a_hang_takes_a_minute(interval_s: float, fires: bool) -> None:
    assert isinstance(verdict_of(log_of(hung(interval_s=interval_s)), HANG), Finding) == fires


def test_a_process_that_never_gave_a_token_is_undetermined() -> None:
    log = hung(gen_tps=steady(12, 0))
    assert isinstance(verdict_of(log_of(log), HANG), NotMeasured)
    verdict = diagnose(log_of(log)).verdict
    assert (verdict.rule, verdict.severity) == ("undetermined", Severity.critical)
    assert "a first compile, a hang or steps that give nobody a token" in verdict.sentence


def test_a_counter_of_preemptions_that_moves_is_no_hang() -> None:
    verdict = verdict_of(log_of(hung(preempt=list(range(12)))), HANG)
    assert not isinstance(verdict, Finding)


@pytest.mark.parametrize(
    ("settings", "silenced"),
    [('{"tensor_parallel_size": 4}', True), ('{"tp": 2}', True), ('{"tp": 1}', False)],
)
def test_an_idle_engine_of_several_ranks_is_noise(settings: str, silenced: bool) -> None:
    idle = {"running": steady(8, 0), "kv": steady(8, 0.0)} | NOTHING
    engine = diagnose(log_of(calm(**idle, settings={"settings": settings}))).engines[0]  # type: ignore[arg-type]
    noise = [said for said in engine.suppressed if said.by == "guard-idle-broadcast-noise"]
    assert [said.rule for said in noise] == (["worker-hang"] if silenced else [])
    assert engine.verdict.rule == "no-scheduler-fault"


# ----------------------------------------------------------------------------------------- queues


def test_a_queue_that_nothing_explains_is_undetermined() -> None:
    log = calm(waiting=[10, 12, 14, 10, 11, 12, 13, 12], settings={"max_num_seqs": 64})
    diagnosis = diagnose(log_of(log))
    assert diagnosis.verdict.rule == "undetermined"
    assert "8 ran at most on 64 slots, KV at most 30.0 %" in diagnosis.verdict.sentence
    missing = 'vllm:num_requests_waiting_by_reason{reason="capacity"}'
    assert missing in diagnosis.findings[0].missing


def test_a_queue_that_only_grows_is_undetermined() -> None:
    verdict = diagnose(log_of(calm(waiting=[2, 3, 4, 6, 9, 12, 16, 20]))).verdict
    assert verdict.rule == "undetermined"
    assert verdict.sentence.startswith("The queue only grows")


def test_a_queue_that_empties_again_is_no_fault() -> None:
    verdict = diagnose(log_of(calm(waiting=[9, 5, 2, 0, 0, 0, 0, 0]))).verdict
    assert verdict.rule == "no-scheduler-fault"
    assert "the queue moved" in verdict.sentence


def test_a_request_that_has_just_come_is_no_queue() -> None:
    assert diagnose(log_of(calm(waiting=steady(8, 1)))).verdict.rule == "no-scheduler-fault"


def test_where_preemptions_are_not_counted_a_full_pool_is_not_called_well() -> None:
    verdict = diagnose(log_of(calm(preempt=[], kv=steady(8, 0.95)))).verdict
    assert verdict.rule == "not-enough-data"
    assert "preemptions are counted nowhere" in verdict.sentence


def test_an_engine_of_which_nothing_is_measured_says_so() -> None:
    log = LogBuilder()
    log._add("log_lines", {"ts": log.now, "source": "vllm-log", "kind": "engine_starting"})
    diagnosis = diagnose(log_of(log))
    assert diagnosis.verdict.rule == "not-enough-data"
    assert not any(isinstance(each, Suppressed) for each in diagnosis.engines[0].suppressed)
    assert "samples" in diagnosis.engines[0].not_measured[0].missing
