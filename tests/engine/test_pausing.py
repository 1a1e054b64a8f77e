"""Paused engines and throttled prefills."""

from __future__ import annotations

from engine.scheduler import PauseState
from telemetry.vocabulary import EventKind, StopReason, ZeroReason
from tests.engine.builders import Run, config


def test_paused_all_schedules_nothing_and_says_so() -> None:
    run = Run(config())
    run.add("a", max_tokens=50)
    run.step()
    run.add("b")
    run.scheduler.set_pause(PauseState.PAUSED_ALL)
    assert run.step().total_num_scheduled_tokens == 0
    run.scheduler.set_pause(PauseState.UNPAUSED)
    empty = next(row for row in run.recorder.steps if row.num_scheduled_tokens == 0)
    assert empty.stop_reason == StopReason.paused_all
    assert empty.num_zero_requests == 1
    assert list(run.step().num_scheduled_tokens) == ["a", "b"]


def test_paused_new_lets_the_running_go_on() -> None:
    run = Run(config())
    run.add("a", max_tokens=50)
    run.step()
    run.add("b")
    run.scheduler.set_pause(PauseState.PAUSED_NEW)
    assert list(run.step().num_scheduled_tokens) == ["a"]
    assert run.last_step.stop_reason == StopReason.paused_new
    paused = [e for e in run.recorder.events if e.kind == EventKind.paused]
    assert [event.text for event in paused] == ["PAUSED_NEW"]


def test_a_throttled_step_lets_decodes_go_first() -> None:
    run = Run(config(max_num_batched_tokens=8))
    run.add("decoding", max_tokens=50)
    run.step()
    run.add("long", prompt=40)
    run.step()
    output = run.scheduler.schedule(throttle_prefills=True)
    run.scheduler.update_from_output(output, run.runner.execute(output))
    assert list(output.num_scheduled_tokens) == ["decoding"]
    _, dense = run.recorder.step_requests[-1]
    assert dense.zero_reason is not None
    assert list(dense.zero_reason[1:]) == [ZeroReason.prefill_throttled]


def test_a_throttled_step_admits_no_prompt() -> None:
    run = Run(config())
    run.add("decoding", max_tokens=50)
    run.step()
    head = run.add("new", prompt=8)
    output = run.scheduler.schedule(throttle_prefills=True)
    run.scheduler.update_from_output(output, run.runner.execute(output))
    assert run.last_step.stop_reason == StopReason.prefill_throttled
    assert run.last_step.head_request == head.number
