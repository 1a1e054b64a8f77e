"""The input budget: places of the model's input that a parallel drafter takes beside the tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import ConfigError, EngineConfig, SpeculationConfig
from telemetry.vocabulary import StopReason, ZeroReason
from tests.engine.builders import Run, config


def run_with(slots: int, **fields: object) -> Run:
    speculation = SpeculationConfig(draft_slots_per_request=slots)
    return Run(replace(config(**fields), speculation=speculation))


def test_tokens_and_slots_share_the_input() -> None:
    run = run_with(3, max_num_batched_tokens=16)
    run.add("a", prompt=6)
    run.add("b", prompt=20)
    assert run.step().num_scheduled_tokens == {"a": 6, "b": 16 - (6 + 3) - 3}


def test_admission_stops_where_only_slots_would_fit() -> None:
    run = run_with(3, max_num_batched_tokens=16)
    run.add("a", prompt=12)
    run.add("b", prompt=1)
    run.step()
    assert run.last_step.stop_reason == StopReason.input_budget
    assert run.last_step.head_request == 1


def test_running_requests_that_do_not_fit_into_the_input_get_nothing() -> None:
    run = run_with(3, max_num_batched_tokens=8)
    for name in "ab":
        run.add(name, prompt=1, max_tokens=9)
    assert run.step().num_scheduled_tokens == {"a": 1, "b": 1}
    run.scheduler.append_known_tokens("a", [21])
    assert run.step().num_scheduled_tokens == {"a": 2}
    _, dense = run.recorder.step_requests[-1]
    assert dense.zero_reason is not None
    assert dense.zero_reason[-1] == ZeroReason.token_budget


def test_without_slots_the_token_budget_runs_out_first() -> None:
    run = run_with(0, max_num_batched_tokens=8)
    run.add("a", prompt=8)
    run.add("b", prompt=1)
    run.step()
    assert run.last_step.stop_reason == StopReason.token_budget


def test_slots_that_leave_no_token_are_refused() -> None:
    with pytest.raises(ConfigError, match="draft_slots_per_request is 8"):
        EngineConfig(
            scheduler=config(max_num_batched_tokens=8).scheduler,
            speculation=SpeculationConfig(draft_slots_per_request=8),
        )
