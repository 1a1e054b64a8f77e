"""Drafts in the input batch: run behind the known tokens, kept or overwritten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.runner.batch_error import BatchError
from engine.runner.batch_inputs import BatchInputs
from engine.runner.input_batch import InputBatch
from engine.scheduler.output import SchedulerOutput
from tests.engine.runner.builders import new, resumed, running, step


def make_batch() -> InputBatch:
    return InputBatch(max_num_seqs=4, max_model_len=16, block_size=4)


def with_drafts(output: SchedulerOutput, **drafts: list[int]) -> SchedulerOutput:
    return replace(output, scheduled_spec_decode_tokens=drafts)


def take(batch: InputBatch, output: SchedulerOutput, *sampled: list[int]) -> BatchInputs:
    """Runs a step; `sampled` are the tokens of its sampling sequences, in batch order."""
    batch.apply(output)
    inputs = batch.prepare(output.num_scheduled_tokens, output.scheduled_spec_decode_tokens)
    batch.commit(inputs, sampled)
    return inputs


def begun() -> InputBatch:
    """Returns a batch with a request of prompt 1, 2 and output 3."""
    batch = make_batch()
    take(batch, step({"a": 2}, new("a", [1, 2], [5])), [3])
    return batch


def verify(batch: InputBatch, sampled: list[int], drafts: list[int]) -> BatchInputs:
    output = step({"a": 1 + len(drafts)}, running("a", 2, 1, [6]))
    return take(batch, with_drafts(output, a=drafts), sampled)


def test_drafts_are_run_behind_the_newest_token_and_each_has_logits() -> None:
    inputs = verify(begun(), [40], [30, 31, 32])
    assert inputs.token_ids.tolist() == [3, 30, 31, 32]
    assert inputs.positions.tolist() == [2, 3, 4, 5]
    assert inputs.slot_mapping.tolist() == [[22, 23, 24, 25]]
    assert inputs.logits_indices.tolist() == [0, 1, 2, 3]
    assert inputs.num_drafts.tolist() == [3]


@pytest.mark.parametrize(("sampled", "num_computed"), [([40], 3), ([30, 40], 4), ([30, 31, 40], 5)])
def test_what_was_right_is_computed_and_the_rest_is_not(
    sampled: list[int], num_computed: int
) -> None:
    batch = begun()
    verify(batch, sampled, [30, 31])
    row = batch.row_of("a")
    assert batch.num_computed_tokens[row] == num_computed
    assert batch.token_ids[row, : batch.num_tokens[row]].tolist() == [1, 2, 3, *sampled]
    batch.apply(step({"a": 1}, running("a", num_computed, 1 + len(sampled))))


def test_the_next_step_writes_over_the_kv_of_a_rejected_draft() -> None:
    batch = begun()
    rejected = verify(batch, [40], [30])
    after = take(batch, step({"a": 1}, running("a", 3, 2)), [41])
    assert after.token_ids.tolist() == [40]
    assert after.slot_mapping.tolist() == [[rejected.slot_mapping[0, 1]]]


def test_a_placeholder_runs_as_some_token_and_stays_a_placeholder() -> None:
    inputs = verify(begun(), [40], [-1, -1])
    assert inputs.token_ids.tolist() == [3, 0, 0]
    assert inputs.draft_token_ids == {0: [-1, -1]}


def test_sequences_with_drafts_stand_among_others() -> None:
    batch = make_batch()
    take(batch, step({"a": 2, "b": 2}, new("a", [1, 2], [5]), new("b", [7, 8], [6])), [3], [9])
    output = step(
        {"a": 3, "b": 1, "c": 2, "d": 1},
        running("a", 2, 1, [7]),
        running("b", 2, 1),
        new("c", [20, 21, 22], [8]),
        new("d", [23], [9]),
    )
    batch.apply(with_drafts(output, a=[30, 31]))
    inputs = batch.prepare(output.num_scheduled_tokens, {"a": [30, 31]})
    assert inputs.request_ids == ("b", "d", "a", "c")
    assert inputs.sampling_seqs.tolist() == [0, 1, 2]  # c is in mid-prompt
    assert inputs.num_drafts.tolist() == [0, 0, 2]
    assert inputs.logits_indices.tolist() == [0, 1, 2, 3, 4]
    batch.commit(inputs, [[10], [11], [30, 40]])
    assert [int(batch.num_computed_tokens[batch.row_of(name)]) for name in "abcd"] == [4, 3, 2, 1]


def test_drafts_may_come_with_the_last_chunk_of_a_prompt() -> None:
    batch = make_batch()
    output = step({"a": 5}, new("a", [1, 2, 3], [5, 6]))
    inputs = take(batch, with_drafts(output, a=[30, 31]), [30, 40])
    assert inputs.logits_indices.tolist() == [2, 3, 4]
    assert batch.num_computed_tokens[batch.row_of("a")] == 4


def test_a_preempted_request_comes_back_without_the_drafts_of_before() -> None:
    batch = begun()
    verify(batch, [40], [30, 31])
    batch.apply(step({}, preempted=["a"]))
    inputs = take(batch, step({"a": 4}, resumed("a", [1, 2, 3, 40], 2, [9])), [41])
    assert inputs.token_ids.tolist() == [1, 2, 3, 40]
    assert inputs.logits_indices.tolist() == [3]


def test_a_draft_model_runs_again_what_a_failed_load_made_void() -> None:
    batch = begun()
    row = batch.row_of("a")
    batch.num_draft_computed_tokens[row] = 5
    batch.make_void({5})
    batch.apply(step({"a": 2}, running("a", 0, 0)))
    assert batch.num_draft_computed_tokens[row] == 0


def test_drafts_may_fill_the_models_length() -> None:
    batch = make_batch()
    take(batch, step({"a": 12}, new("a", list(range(12)), [1, 2, 3])), [50])
    output = with_drafts(step({"a": 4}, running("a", 12, 1, [4])), a=[51, 52, 53])
    take(batch, output, [51, 52, 53, 54])
    assert batch.num_tokens[batch.row_of("a")] == 17


@pytest.mark.parametrize(
    ("num_scheduled", "drafts", "problem"),
    [
        (3, [30], "up to token 5, but has 3 tokens and 1 drafts"),
        (1, [30], "up to token 3, but has 3 tokens and 1 drafts"),
        (6, [30] * 5, "up to token 8, but has 3 tokens and 5 drafts and 1 blocks of 4"),
    ],
)
def test_drafts_that_contradict_the_batch_are_refused(
    num_scheduled: int, drafts: list[int], problem: str
) -> None:
    batch = begun()
    batch.apply(step({"a": num_scheduled}, running("a", 2, 1)))
    with pytest.raises(BatchError, match=problem):
        batch.prepare({"a": num_scheduled}, {"a": drafts})
