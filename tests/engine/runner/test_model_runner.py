from __future__ import annotations

import pytest
from transformers import LlamaForCausalLM

from engine.config import ConfigError, KVGroupConfig
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from telemetry.vocabulary import Phase
from tests.engine.runner.builders import (
    engine_config,
    new,
    reference_tokens,
    request,
    run_all,
    run_step,
    running,
    step,
)

PROMPT = [17, 4, 90, 33, 5, 61, 8, 12, 77, 3]


def test_deltas_alone_drive_it_to_the_reference_tokens(
    small_model: LoadedModel, small_reference: LlamaForCausalLM
) -> None:
    runner = ModelRunner(small_model, engine_config())
    tokens = []
    output = runner.execute(step({"a": 10}, new("a", PROMPT, [9, 4])))
    for n in range(1, 20):
        tokens += output.sampled_token_ids["a"]
        grown = 10 + n
        blocks = [20 + n] if grown > 16 and grown % 8 == 1 else None
        output = runner.execute(step({"a": 1}, running("a", 9 + n, n, blocks)))
    assert tokens == reference_tokens(small_reference, PROMPT, 19)[0]


def test_a_request_in_mid_prefill_has_no_entry(small_model: LoadedModel) -> None:
    runner = ModelRunner(small_model, engine_config())
    output = runner.execute(step({"a": 4}, new("a", PROMPT, [9, 4])))
    assert output.sampled_token_ids == {}


def test_each_phase_is_announced_in_order_and_timed(small_model: LoadedModel) -> None:
    phases: list[Phase] = []
    runner = ModelRunner(small_model, engine_config(), phase_hook=phases.append)
    output = runner.execute(step({"a": 10}, new("a", PROMPT, [9, 4])))
    assert phases == [Phase.inputs, Phase.forward, Phase.sample]
    assert all(
        ns is not None and ns > 0 for ns in (output.inputs_ns, output.forward_ns, output.sample_ns)
    )


def test_a_step_without_tokens_still_hears_who_left(small_model: LoadedModel) -> None:
    runner = ModelRunner(small_model, engine_config())
    runner.execute(step({"a": 10}, new("a", PROMPT, [9, 4])))
    output = runner.execute(step({}, finished=["a"]))
    assert runner.batch.request_ids == frozenset()
    assert output.forward_ns is None


def test_more_positions_than_the_model_has_are_refused(small_model: LoadedModel) -> None:
    with pytest.raises(ConfigError, match="lower --max-model-len"):
        ModelRunner(small_model, engine_config(max_model_len=513))


def test_other_kv_groups_than_the_models_are_refused(small_model: LoadedModel) -> None:
    windowed = engine_config(groups=(KVGroupConfig("sliding_window", 8, 16),))
    with pytest.raises(ConfigError, match="take them from the model"):
        ModelRunner(small_model, windowed)


def test_a_preempted_id_leaves_and_comes_back_with_all_it_has(small_model: LoadedModel) -> None:
    config = engine_config(num_blocks=12, max_num_seqs=4)
    scheduler, runner = Scheduler(config), ModelRunner(small_model, config)
    requests = [request(n, [n + 2] * 20, SamplingParams(max_tokens=30)) for n in range(4)]
    for arrival in requests:
        scheduler.add_request(arrival)
    num_left = num_back = 0
    while scheduler.requests:
        output, _ = run_step(scheduler, runner)
        back = {c.request_id: c for c in output.scheduled_cached_reqs if c.resumed}
        for request_id in output.preempted_req_ids - back.keys():
            num_left += 1
            assert request_id not in runner.batch.request_ids
        for request_id, cached in back.items():
            num_back += 1
            assert cached.all_token_ids is not None
            assert cached.new_block_ids is not None
            blocks = cached.new_block_ids[0]
            row = runner.batch.row_of(request_id)
            sent = requests[int(request_id[1:])].token_ids[: len(cached.all_token_ids)]
            assert list(cached.all_token_ids) == list(sent)
            assert len(sent) == 20 + cached.num_output_tokens
            assert runner.batch.block_tables[0, row, : len(blocks)].tolist() == blocks
            assert runner.batch.num_blocks[0, row] == len(blocks)
    assert num_left >= num_back > 0


def test_a_seed_gives_the_same_tokens_alone_and_under_pressure(small_model: LoadedModel) -> None:
    sampling = SamplingParams(max_tokens=40, temperature=1.0, seed=9, ignore_eos=True)
    ample = engine_config()
    alone = run_all(
        Scheduler(ample), ModelRunner(small_model, ample), [request(5, PROMPT, sampling)]
    )
    tight = engine_config(num_blocks=20, budget=24)
    neighbours = [
        request(n, [n + 2] * 12, SamplingParams(max_tokens=40, temperature=1.0, ignore_eos=True))
        for n in range(5)
    ]
    scheduler = Scheduler(tight)
    last = request(5, PROMPT, sampling)
    crowded = run_all(scheduler, ModelRunner(small_model, tight), [*neighbours, last])
    assert last.num_preemptions > 0
    assert crowded["r5"] == alone["r5"]


def test_a_sequence_runs_up_to_max_model_len(
    small_model: LoadedModel, small_reference: LlamaForCausalLM
) -> None:
    config = engine_config(max_model_len=61)
    endless = SamplingParams(max_tokens=1000, ignore_eos=True)
    runner = ModelRunner(small_model, config)
    tokens = run_all(Scheduler(config), runner, [request(0, PROMPT, endless)])
    assert tokens["r0"] == reference_tokens(small_reference, PROMPT, 51)[0]


def test_an_id_that_comes_again_is_a_new_request(
    small_model: LoadedModel, small_reference: LlamaForCausalLM
) -> None:
    runner = ModelRunner(small_model, engine_config())
    hot = SamplingParams(temperature=2.0, seed=4)
    first = runner.execute(step({"a": 10}, new("a", PROMPT, [9, 4], sampling=hot)))
    again = runner.execute(step({"a": 10}, new("a", PROMPT, [3, 5]), finished=["a"]))
    expected = reference_tokens(small_reference, PROMPT, 1)[0]
    assert first.sampled_token_ids["a"] != expected
    assert again.sampled_token_ids["a"] == expected
