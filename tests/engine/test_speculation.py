"""Draft tokens: scheduled, verified, rejected, padded."""

from __future__ import annotations

from dataclasses import replace

from engine.config import SpeculationConfig
from engine.scheduler import ModelRunnerOutput, SchedulerOutput
from telemetry.vocabulary import StopReason
from tests.engine.builders import Run, config


def speculating(**fields: object) -> Run:
    """Returns a run of one request with an output, in an engine with three drafts."""
    run = Run(replace(config(**fields), speculation=SpeculationConfig(num_speculative_tokens=3)))
    run.add("a", prompt=4, max_tokens=50)
    run.step()
    return run


def verify(run: Run, sampled: list[int]) -> SchedulerOutput:
    output = run.scheduler.schedule()
    run.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids={"a": sampled}))
    run.scheduler.check_integrity()
    return output


def test_drafts_are_scheduled_behind_the_newest_token() -> None:
    run = speculating()
    run.scheduler.update_draft_token_ids({"a": [11, 12, 13]})
    output = verify(run, [11, 12, 99])
    assert output.num_scheduled_tokens == {"a": 4}
    assert output.scheduled_spec_decode_tokens == {"a": [11, 12, 13]}


def test_rejected_drafts_count_as_not_computed() -> None:
    run = speculating()
    request = run.scheduler.requests["a"]
    run.scheduler.update_draft_token_ids({"a": [11, 12, 13]})
    verify(run, [11, 99])
    assert request.num_computed_tokens == request.num_tokens - 1 == 6
    row = run.last_step
    assert (row.num_draft_tokens, row.num_accepted, row.num_decode_tokens) == (3, 1, 1)


def test_drafts_beyond_the_budget_are_cut() -> None:
    run = speculating(max_num_batched_tokens=3, max_num_seqs=1)
    while run.scheduler.requests["a"].is_prefill_chunk:
        run.step()
    run.scheduler.update_draft_token_ids({"a": [11, 12, 13]})
    assert run.scheduler.schedule().scheduled_spec_decode_tokens == {"a": [11, 12]}


def test_an_admission_with_one_token_to_do_is_padded() -> None:
    run = speculating()
    run.add("one", prompt=1)
    output = run.scheduler.schedule()
    assert output.scheduled_spec_decode_tokens == {"one": [-1, -1, -1]}


def test_padding_that_does_not_fit_ends_the_admission() -> None:
    run = speculating(max_num_batched_tokens=4)
    run.add("one", prompt=1)
    output = run.scheduler.schedule()
    run.scheduler.update_from_output(output, run.runner.execute(output))
    assert run.last_step.stop_reason == StopReason.draft_padding


def test_a_threshold_below_the_padding_cuts_the_padding() -> None:
    run = speculating(long_prefill_token_threshold=2)
    run.add("one", prompt=1)
    output = run.scheduler.schedule()
    assert output.num_scheduled_tokens["one"] == 2
    assert output.scheduled_spec_decode_tokens == {"one": [-1]}
