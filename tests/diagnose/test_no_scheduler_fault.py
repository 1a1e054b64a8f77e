from __future__ import annotations

from diagnose.diagnosis import diagnose
from diagnose.finding import Severity
from telemetry.vocabulary import EventKind, Phase, StopReason
from tests.diagnose.logs import described, log_of, pressed, steps
from tests.telemetry.log_builder import LogBuilder

SECOND = 1_000_000_000


def test_a_calm_run_is_no_fault() -> None:
    diagnosis = diagnose(log_of(steps(described(), 200)))
    assert diagnosis.verdict.rule == "no-scheduler-fault"
    assert diagnosis.verdict.sentence.startswith("Nobody waited")
    assert diagnosis.worst is None


def test_an_empty_log_is_not_called_well() -> None:
    diagnosis = diagnose(log_of(described()))
    assert diagnosis.verdict.rule == "not-enough-data"
    assert not diagnosis.has_enough_data


def test_a_few_steps_are_not_called_well() -> None:
    diagnosis = diagnose(log_of(steps(described(), 19)))
    assert diagnosis.verdict.rule == "not-enough-data"
    assert "19 working steps" in diagnosis.verdict.sentence


def test_twenty_steps_are_enough() -> None:
    assert diagnose(log_of(steps(described(), 20))).has_enough_data


def test_a_finding_takes_its_place() -> None:
    engine = diagnose(log_of(pressed(num_evicted=20))).engines[0]
    assert "no-scheduler-fault" not in {said.rule for said in engine.healthy}


def test_running_requests_without_a_token_are_undetermined_but_in_a_pause() -> None:
    def still(token_budget: int) -> str:
        log = steps(described(), 40)
        log.step_ns = SECOND
        steps(log, 40, running=4, tokens=0, token_budget=token_budget)
        return diagnose(log_of(log)).verdict.rule

    assert still(token_budget=2048) == "undetermined"
    assert still(token_budget=0) == "no-scheduler-fault"


def test_a_short_queue_is_told_and_no_fault() -> None:
    log = steps(described(), 200)
    steps(log, 20, waiting=2, stop=StopReason.token_budget)
    steps(log, 50)
    diagnosis = diagnose(log_of(log))
    assert diagnosis.verdict.rule == "no-scheduler-fault"
    assert "7.4 % of steps" in diagnosis.verdict.sentence


def test_a_step_that_does_not_end_has_a_rule_of_its_own() -> None:
    log = steps(described(), 100).advance(61 * SECOND)
    log.heartbeat(phase=Phase.forward, phase_age_ns=61 * SECOND)
    diagnosis = diagnose(log_of(log))
    assert diagnosis.verdict.rule == "worker-hang"
    assert "Step 99 has been in forward" in diagnosis.verdict.sentence
    assert diagnosis.findings[0].missing == ("what the device did meanwhile",)


def test_an_idle_engine_is_not_hanging() -> None:
    log = steps(described(), 100).advance(900 * SECOND)
    log.heartbeat(phase=Phase.idle, phase_age_ns=900 * SECOND)
    assert diagnose(log_of(log)).verdict.rule == "no-scheduler-fault"


def test_runners_without_tokens_are_undetermined() -> None:
    log = steps(described(), 100)
    steps(log, 2, tokens=0)
    log.advance(31 * SECOND)
    steps(log, 1, tokens=0)
    assert diagnose(log_of(log)).verdict.rule == "undetermined"


def test_a_queue_that_only_grows_is_undetermined_and_names_the_stop() -> None:
    log = described()
    for waiting in range(200):
        steps(log, 1, waiting=waiting // 4, stop=StopReason.token_budget)
    diagnosis = diagnose(log_of(log))
    assert diagnosis.verdict.rule == "undetermined"
    assert diagnosis.verdict.severity is Severity.medium
    assert "token_budget" in diagnosis.verdict.sentence


def test_a_long_queue_names_what_its_head_waited_for() -> None:
    sentence = diagnose(log_of(_queue_of(step_ns=SECOND // 10))).verdict.sentence
    assert "mostly behind a head that waited for kv_watermark" in sentence


def test_a_queue_of_two_seconds_is_none_to_speak_of() -> None:
    diagnosis = diagnose(log_of(_queue_of(step_ns=SECOND // 100)))
    assert "kv_watermark" not in diagnosis.verdict.sentence


def _queue_of(*, step_ns: int) -> LogBuilder:
    log = described()
    log.step_ns = step_ns
    for request in range(20):
        log.arrived(request, num_prompt_tokens=64, max_tokens=64)
    return steps(log, 200, waiting=20, stop=StopReason.kv_watermark, head_request=0)


def test_a_queue_that_grows_and_empties_is_no_fault() -> None:
    log = described()
    for waiting in range(200):
        steps(log, 1, waiting=waiting // 4, stop=StopReason.token_budget)
    steps(log, 400)
    assert diagnose(log_of(log)).verdict.rule == "no-scheduler-fault"


def test_missing_steps_are_told_before_the_verdict() -> None:
    log = steps(described(), 50)
    log.current_step += 50
    steps(log, 100)
    diagnosis = diagnose(log_of(log))
    assert diagnosis.verdict.sentence.startswith("25.0 % of steps missing")
    assert diagnosis.engines[0].steps.num_steps_missing == 50


def test_repeated_steps_are_not_missing_ones() -> None:
    log = steps(described(), 50)
    log.step(num_running=0, num_waiting=0, num_scheduled_tokens=0, num_repeats=10)
    log.current_step += 9
    steps(log, 50)
    engine = diagnose(log_of(log)).engines[0]
    assert engine.steps.num_steps_missing == 0
    assert engine.steps.num_steps == 110


def test_an_engine_that_died_is_told() -> None:
    log = steps(described(), 50).event(EventKind.engine_died)
    engine = diagnose(log_of(log)).engines[0]
    assert any("without saying goodbye, in step 49" in said for said in engine.data_quality)


def test_the_worst_engine_gives_the_verdict() -> None:
    calm = steps(described(engine=7), 200)
    diagnosis = diagnose(log_of(calm, pressed(num_evicted=20)))
    assert diagnosis.verdict.rule == "kv-preemption-pressure"
    assert [engine.scope.engine for engine in diagnosis.engines] == [1, 7]
