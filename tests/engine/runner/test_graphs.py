"""Decode batches that are padded and launched as a whole give the tokens that they give alone.

On a CPU the recorded function is called again, on the same buffers: everything but the recording
is what runs on CUDA.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from engine.compilation import CompilationConfig
from engine.config import EngineConfig
from engine.lora.layers import AdapterMapping
from engine.request import Request
from engine.runner.graphs import DecodeGraphs, RerunCapturer
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.output import GraphMode
from telemetry.recorder import ListRecorder
from tests.engine.runner import speculating
from tests.engine.runner.builders import (
    SIZES,
    TEST_DEVICE,
    engine_config,
    request,
    run_all,
    save_model,
)
from tests.engine.runner.test_decode_shapes import step

TIGHT = engine_config(num_blocks=40, budget=48, max_num_seqs=12, max_model_len=128)
"""Little enough memory that requests are preempted."""


def requests(vocab_size: int) -> list[Request]:
    rng = random.Random(3)
    return [
        request(
            n,
            [rng.randrange(2, vocab_size) for _ in range(rng.randrange(3, 30))],
            SamplingParams(
                max_tokens=rng.randrange(10, 40),
                ignore_eos=True,
                temperature=0.8 if n % 3 == 0 else 0.0,
                seed=n,
            ),
        )
        for n in range(24)
    ]


def run(
    model: LoadedModel, config: EngineConfig, *, with_graphs: bool
) -> tuple[dict[str, list[int]], Counter[int | None], int]:
    """Returns everybody's tokens, how steps were launched, and how many requests were preempted."""
    recorder = ListRecorder()
    runner = ModelRunner(model, config)
    if with_graphs:
        runner.capture_graphs(RerunCapturer())
    tokens = run_all(
        Scheduler(config, recorder=recorder),
        runner,
        requests(model.vocab_size),
        arrivals_per_step=2,
    )
    modes = Counter(row.graph_mode for row in recorder.steps if row.num_scheduled_tokens)
    return tokens, modes, recorder.num_preemptions


@pytest.fixture(scope="module")
def windowed_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A very small model each of whose layers sees 12 tokens."""
    torch.manual_seed(3)
    module = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=12)).eval()
    return load_model(
        save_model(module, tmp_path_factory.mktemp("windowed")), dtype="float32", device=TEST_DEVICE
    )


@pytest.mark.parametrize(("which", "num_blocks"), [("small_model", 40), ("windowed_model", 20)])
def test_padded_decodes_give_the_same_tokens(
    which: str, num_blocks: int, request: pytest.FixtureRequest
) -> None:
    model: LoadedModel = request.getfixturevalue(which)
    cache = replace(TIGHT.cache, groups=model.kv_groups(8), num_gpu_blocks=num_blocks)
    config = replace(TIGHT, cache=cache)
    eager, eager_modes, _ = run(model, config, with_graphs=False)
    padded, modes, num_preempted = run(model, config, with_graphs=True)
    assert padded == eager
    assert num_preempted > 0
    assert set(eager_modes) == {GraphMode.EAGER}
    assert modes[GraphMode.FULL] > modes[GraphMode.EAGER] > 0


def test_a_batch_larger_than_all_graphs_runs_without(small_model: LoadedModel) -> None:
    few = replace(TIGHT, compilation=CompilationConfig(cudagraph_capture_sizes=(2,)))
    tokens, modes, _ = run(small_model, few, with_graphs=True)
    assert tokens == run(small_model, TIGHT, with_graphs=False)[0]
    assert modes[GraphMode.EAGER] > modes[GraphMode.FULL] > 0


def test_drafts_are_verified_in_graphs_of_their_own(small_model: LoadedModel) -> None:
    """A step of decodes has four tokens a request then, and some steps have one."""
    itself: speculating.Who = (small_model, "coupled")
    greedy = SamplingParams(max_tokens=24, ignore_eos=True)
    eager = speculating.run(small_model, itself, lambda n: greedy, is_scarce=True)
    padded = speculating.run(
        small_model, itself, lambda n: greedy, is_scarce=True, with_graphs=True
    )
    assert padded.tokens == eager.tokens
    verified = [row for row in padded.recorder.steps if row.num_draft_tokens]
    modes = Counter(row.graph_mode for row in verified)
    assert modes[GraphMode.FULL] > 0
    assert modes[GraphMode.EAGER] > 0


@torch.inference_mode()
def test_a_step_with_adapters_runs_without_a_graph(small_model: LoadedModel) -> None:
    runner = ModelRunner(small_model, TIGHT)
    runner.capture_graphs(RerunCapturer())
    inputs = step([1, 1], [9, 2])
    some = AdapterMapping(num_tokens=2, parts=())
    assert runner.forward_pass.prepare(inputs, None).graph_mode is GraphMode.FULL
    assert runner.forward_pass.prepare(inputs, some).graph_mode is GraphMode.EAGER


def graphs_of(model: LoadedModel, config: EngineConfig) -> DecodeGraphs:
    runner = ModelRunner(model, config)
    runner.capture_graphs(RerunCapturer())
    assert runner.forward_pass.graphs is not None
    return runner.forward_pass.graphs


def test_a_shape_that_would_gather_too_much_is_left_out(small_model: LoadedModel) -> None:
    long = engine_config(num_blocks=80, budget=512, max_num_seqs=100, max_model_len=512)
    shapes = graphs_of(small_model, long).shapes
    assert len(shapes) > 0
    assert max(shape.num_seqs for shape in shapes) < 100
