from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.runner.batch_error import BatchError
from engine.runner.batch_inputs import BatchInputs
from engine.runner.input_batch import InputBatch
from engine.scheduler.output import SchedulerOutput
from tests.engine.runner.builders import new, resumed, running, step


def make_batch() -> InputBatch:
    return InputBatch(max_num_seqs=4, max_model_len=64, block_size=4)


def take(batch: InputBatch, output: SchedulerOutput, token: int = 99) -> BatchInputs:
    """Applies a step and lets each sampling sequence sample `token`."""
    batch.apply(output)
    inputs = batch.prepare(output.num_scheduled_tokens)
    batch.commit(inputs, [[token]] * len(inputs.sampling_seqs))
    return inputs


def test_a_new_request_runs_its_prompt_through_its_blocks() -> None:
    inputs = take(make_batch(), step({"a": 6}, new("a", [10, 11, 12, 13, 14, 15], [7, 3])))
    assert inputs.token_ids.tolist() == [10, 11, 12, 13, 14, 15]
    assert inputs.positions.tolist() == [0, 1, 2, 3, 4, 5]
    assert inputs.slot_mapping.tolist() == [[28, 29, 30, 31, 12, 13]]
    assert inputs.logits_indices.tolist() == [5]


def test_a_prefix_hit_starts_behind_the_computed_tokens() -> None:
    inputs = take(
        make_batch(), step({"a": 2}, new("a", [1, 2, 3, 4, 5, 6], [7, 3], num_computed=4))
    )
    assert inputs.token_ids.tolist() == [5, 6]
    assert inputs.slot_mapping.tolist() == [[12, 13]]
    assert inputs.seq_lens.tolist() == [6]


def test_a_chunk_short_of_the_newest_token_samples_nothing() -> None:
    inputs = take(make_batch(), step({"a": 3}, new("a", [1, 2, 3, 4], [5])))
    assert inputs.sampling_seqs.tolist() == []


def test_the_next_chunk_goes_on_where_the_last_one_ended() -> None:
    batch = make_batch()
    take(batch, step({"a": 3}, new("a", [1, 2, 3, 4, 5], [5])))
    inputs = take(batch, step({"a": 2}, running("a", 3, 0, [6])))
    assert inputs.token_ids.tolist() == [4, 5]
    assert inputs.slot_mapping.tolist() == [[23, 24]]
    assert inputs.sampling_seqs.tolist() == [0]


def test_a_sampled_token_is_the_next_input() -> None:
    batch = make_batch()
    take(batch, step({"a": 2}, new("a", [1, 2], [5])), token=42)
    inputs = take(batch, step({"a": 1}, running("a", 2, 1)))
    assert inputs.token_ids.tolist() == [42]
    assert inputs.positions.tolist() == [2]


def test_decodes_come_first_and_the_longest_of_them_leads() -> None:
    batch = make_batch()
    take(batch, step({"a": 2, "b": 5}, new("a", [1, 2], [5]), new("b", [1, 2, 3, 4, 5], [6, 7])))
    inputs = take(
        batch,
        step(
            {"a": 1, "c": 3, "b": 1},
            running("a", 2, 1),
            running("b", 5, 1),
            new("c", [7, 8, 9], [8]),
        ),
    )
    assert inputs.request_ids == ("b", "a", "c")
    assert inputs.query_start.tolist() == [0, 1, 2, 5]
    assert inputs.block_tables.tolist() == [[[6, 7], [5, 0], [8, 0]]]


def test_a_request_keeps_its_row_while_others_leave() -> None:
    batch = make_batch()
    take(batch, step({"a": 1, "b": 1}, new("a", [1], [5]), new("b", [2], [6])))
    row = batch.row_of("b")
    take(batch, step({"b": 1}, running("b", 1, 1), finished=["a"]))
    assert batch.row_of("b") == row
    assert batch.request_ids == {"b"}


def test_a_preempted_request_leaves_and_its_row_is_empty() -> None:
    batch = make_batch()
    take(batch, step({"a": 6}, new("a", [1, 2, 3, 4, 5, 6], [5, 6])))
    row = batch.row_of("a")
    batch.apply(step({}, preempted=["a"]))
    assert batch.request_ids == frozenset()
    assert batch.num_tokens[row] == batch.num_blocks[0, row] == 0
    assert not batch.block_tables[0, row].any()


def test_a_resumed_request_is_replaced_wholly() -> None:
    batch = make_batch()
    take(batch, step({"a": 6}, new("a", [1, 2, 3, 4, 5, 6], [5, 6])), token=9)
    batch.apply(step({}, preempted=["a"]))
    inputs = take(batch, step({"a": 7}, resumed("a", [1, 2, 3, 4, 5, 6, 9], 1, [8, 2])))
    assert inputs.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 9]
    assert inputs.block_tables.tolist() == [[[8, 2]]]
    row = batch.row_of("a")
    assert batch.num_prompt_tokens[row] == 6


def test_a_request_preempted_and_resumed_within_one_delta_is_replaced() -> None:
    batch = make_batch()
    take(batch, step({"a": 2}, new("a", [1, 2], [5])), token=9)
    inputs = take(batch, step({"a": 3}, resumed("a", [1, 2, 9], 1, [3]), preempted=["a"]))
    assert inputs.block_tables.tolist() == [[[3]]]


def test_an_id_may_come_again_in_the_delta_that_says_it_ended() -> None:
    batch = make_batch()
    take(batch, step({"a": 2}, new("a", [1, 2], [5])))
    inputs = take(batch, step({"a": 1}, new("a", [3], [6]), finished=["a"]))
    assert inputs.token_ids.tolist() == [3]


def test_the_end_of_a_request_that_never_ran_changes_nothing() -> None:
    batch = make_batch()
    batch.apply(step({}, finished=["ghost"]))
    assert batch.request_ids == frozenset()


def test_a_session_comes_as_new_again_and_goes_on_in_its_blocks() -> None:
    batch = make_batch()
    take(batch, step({"s": 4}, new("s", [1, 2, 3, 4], [5])), token=9)
    take(batch, step({"s": 1}, running("s", 4, 1, [6])), token=8)
    turn = new("s", [1, 2, 3, 4, 9, 30, 31, 32], [5, 6], num_computed=5)
    inputs = take(batch, step({"s": 3}, turn))
    assert inputs.token_ids.tolist() == [30, 31, 32]
    assert inputs.positions.tolist() == [5, 6, 7]
    assert inputs.block_tables.tolist() == [[[5, 6]]]
    assert inputs.sampling_seqs.tolist() == [0]
    assert batch.num_prompt_tokens[batch.row_of("s")] == 8


@pytest.mark.parametrize(
    ("prompt", "blocks", "num_computed"),
    [
        ([1, 2, 3, 4, 9, 30], [5, 7], 5),  # other blocks
        ([1, 2, 3, 3, 9, 30], [5, 6], 5),  # other tokens
        ([1, 2, 3, 4, 9, 8, 30], [5, 6], 6),  # more computed than there is
    ],
)
def test_a_session_that_does_not_go_on_where_it_was_is_refused(
    prompt: list[int], blocks: list[int], num_computed: int
) -> None:
    batch = make_batch()
    take(batch, step({"s": 4}, new("s", [1, 2, 3, 4], [5])), token=9)
    take(batch, step({"s": 1}, running("s", 4, 1, [6])), token=8)
    with pytest.raises(BatchError, match="not those of a session's last turn"):
        batch.apply(step({"s": 1}, new("s", prompt, blocks, num_computed=num_computed)))


def test_each_kv_group_has_tables_of_its_own() -> None:
    batch = InputBatch(max_num_seqs=4, max_model_len=64, block_size=4, num_groups=2)
    both = replace(new("a", [1, 2, 3, 4, 5], []), block_ids=([7, 3], [9, 2]))
    inputs = take(batch, step({"a": 5}, both))
    assert inputs.block_tables.tolist() == [[[7, 3]], [[9, 2]]]
    assert inputs.slot_mapping.tolist() == [[28, 29, 30, 31, 12], [36, 37, 38, 39, 8]]


def test_a_session_goes_on_though_its_window_has_passed_some_blocks() -> None:
    batch = InputBatch(max_num_seqs=4, max_model_len=64, block_size=4, num_groups=2)
    begun = replace(new("s", [1, 2, 3, 4], []), block_ids=([5], [8]))
    take(batch, step({"s": 4}, begun), token=9)
    turn = replace(new("s", [1, 2, 3, 4, 30], [], num_computed=4), block_ids=([5, 6], [0, 7]))
    inputs = take(batch, step({"s": 1}, turn))
    assert inputs.block_tables.tolist() == [[[5, 6]], [[0, 7]]]


def test_another_number_of_kv_groups_is_refused() -> None:
    batch = InputBatch(max_num_seqs=4, max_model_len=64, block_size=4, num_groups=2)
    with pytest.raises(BatchError, match="has 1 KV groups but the runner has 2"):
        batch.apply(step({"a": 1}, new("a", [1], [5])))


def test_a_session_that_lost_its_blocks_comes_as_new_with_others() -> None:
    batch = make_batch()
    take(batch, step({"s": 2}, new("s", [1, 2], [5])), token=9)
    batch.apply(step({}, preempted=["s"]))
    inputs = take(batch, step({"s": 3}, new("s", [1, 2, 30], [7])))
    assert inputs.block_tables.tolist() == [[[7]]]


def test_tokens_that_were_not_sampled_are_run_like_the_others() -> None:
    batch = make_batch()
    take(batch, step({"a": 2}, new("a", [1, 2], [5])), token=9)
    jumped = replace(running("a", 2, 3, [6]), new_token_ids=(40, 41))
    inputs = take(batch, step({"a": 3}, jumped), token=8)
    assert inputs.token_ids.tolist() == [9, 40, 41]
    assert batch.token_ids[batch.row_of("a"), :6].tolist() == [1, 2, 9, 40, 41, 8]


def test_a_request_may_begin_with_outputs() -> None:
    batch = make_batch()
    begun = replace(new("a", [1, 2], [5]), output_token_ids=(40,))
    inputs = take(batch, step({"a": 3}, begun))
    assert inputs.token_ids.tolist() == [1, 2, 40]
    assert batch.num_prompt_tokens[batch.row_of("a")] == 2


def test_tokens_beyond_the_models_length_are_refused() -> None:
    batch = InputBatch(max_num_seqs=1, max_model_len=4, block_size=4)
    take(batch, step({"a": 2}, new("a", [1, 2], [5])))
    jumped = replace(running("a", 2, 4), new_token_ids=(40, 41, 42))
    with pytest.raises(BatchError, match="has 6 tokens but max_model_len is 4"):
        batch.apply(step({"a": 1}, jumped))


def test_an_ended_victim_cannot_come_back() -> None:
    batch = make_batch()
    take(batch, step({"a": 2}, new("a", [1, 2], [5])))
    batch.apply(step({}, preempted=["a"], finished=["a"]))
    with pytest.raises(BatchError, match="had not been preempted"):
        batch.apply(step({"a": 3}, resumed("a", [1, 2, 9], 1, [5])))


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (step({"a": 1}, new("a", [1, 2], [5])), "came as new but is known"),
        (step({"a": 3}, resumed("a", [1, 2, 9], 1, [5])), "had not been preempted"),
        (step({"a": 1}, running("a", 1, 1)), "1 computed and 1 output tokens for the scheduler"),
        (step({"a": 1}, running("a", 2, 0)), "2 computed and 0 output tokens for the scheduler"),
        (step({"b": 1}, running("b", 0, 0)), "'b' is scheduled but is not in the batch"),
        (step({}, preempted=["b"]), "'b' was preempted but is not in the batch"),
        (step({"b": 1}, new("b", list(range(65)), [5])), "65 tokens but max_model_len is 64"),
        (step({"b": 1}, new("b", [1], list(range(17)))), "17 blocks but max_model_len allows 16"),
    ],
)
def test_a_delta_that_contradicts_the_batch_is_refused(
    output: SchedulerOutput, problem: str
) -> None:
    batch = make_batch()
    take(batch, step({"a": 2}, new("a", [1, 2], [5])))
    with pytest.raises(BatchError, match=problem):
        batch.apply(output)


@pytest.mark.parametrize(
    ("scheduled", "problem"),
    [
        ({"b": 1}, "'b' is scheduled but is not in the batch"),
        ({"a": 0}, "was scheduled 0 tokens"),
        ({"a": 3}, "up to token 3, but has 2 tokens"),
        ({"c": 5}, "up to token 5, but has 6 tokens and 1 blocks of 4"),
    ],
)
def test_tokens_without_known_ids_or_blocks_are_refused(
    scheduled: dict[str, int], problem: str
) -> None:
    batch = make_batch()
    batch.apply(step({}, new("a", [1, 2], [5]), new("c", [1, 2, 3, 4, 5, 6], [6])))
    with pytest.raises(BatchError, match=problem):
        batch.prepare(scheduled)


def test_more_requests_than_rows_are_refused() -> None:
    batch = InputBatch(max_num_seqs=1, max_model_len=64, block_size=4)
    with pytest.raises(BatchError, match="all 1 rows"):
        batch.apply(step({}, new("a", [1], [5]), new("b", [1], [6])))


def test_a_sequence_may_fill_max_model_len() -> None:
    batch = InputBatch(max_num_seqs=1, max_model_len=8, block_size=4)
    take(batch, step({"a": 8}, new("a", list(range(8)), [1, 2])))
    assert batch.num_tokens[0] == 9
    assert batch.block_tables.dtype == np.int32
