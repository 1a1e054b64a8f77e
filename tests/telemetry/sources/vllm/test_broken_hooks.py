"""Whatever of ours breaks, vLLM does what it does without us, and the recorder gives up."""

from __future__ import annotations

import pytest

from telemetry.sources.vllm.guard import MAX_ERRORS
from tests.telemetry.sources.vllm.conftest import Lab


def test_vllm_does_the_same_with_any_hook_broken(lab: Lab) -> None:
    changed = [name for name, result in lab.runs.broken.items() if not result.is_unchanged]
    assert len(lab.runs.broken) > 40
    assert changed == []


def test_the_recorder_gives_up_after_a_few_errors(lab: Lab) -> None:
    results = lab.runs.broken.values()
    assert all(result.num_errors <= MAX_ERRORS for result in results)
    assert all(result.is_off for result in results)


@pytest.mark.parametrize(
    "broken",
    ["all hooks", "before_schedule", "after_allocate_slots", "recorder.record_step"],
)
def test_giving_up_is_told_once(lab: Lab, broken: str) -> None:
    result = lab.runs.broken[broken]
    assert (result.num_errors, result.num_degraded) == (MAX_ERRORS, 1)


def test_an_engine_without_a_recorder_runs(lab: Lab) -> None:
    assert lab.runs.broken["opening"].is_unchanged
