"""Tokens and log probabilities are those that vLLM itself gave, with each penalty and bias.

`tests/data/vllm_sampling.json` was written with vLLM 0.32.0 on CPU: the tiny Llama, temperature 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from engine.core import EngineCore, NewRequest
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_runner import ModelRunner
from engine.runner.tiny_llama import tiny_llama
from engine.sampling import SamplingParams
from telemetry.recorder import NullRecorder
from tests.engine.runner.builders import engine_config

THEIRS = json.loads((Path(__file__).parents[2] / "data" / "vllm_sampling.json").read_text())
CASES = {case["name"]: case for case in THEIRS["cases"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    directory = tiny_llama(tmp_path_factory.mktemp("cache"))
    weights = load_file(directory / "model.safetensors")["model.embed_tokens.weight"]
    if hashlib.sha256(weights.numpy().tobytes()).hexdigest() != THEIRS["embedding_sha256"]:
        pytest.skip("this torch makes other weights of the tiny Llama's seed than vLLM was given")
    return load_model(directory, dtype="float32", device="cpu")


@pytest.fixture
def core(model: LoadedModel) -> Iterator[EngineCore]:
    config = engine_config(budget=16)
    core = EngineCore(
        config,
        ModelRunner(model, config),
        recorder=NullRecorder(),
        clock=iter(range(10**9)).__next__,
        model_name="tiny-llama",
    )
    yield core
    core.scheduler.check_integrity()


def sampling(case: dict[str, Any]) -> SamplingParams:
    given = dict(case["sampling"])
    biases = tuple((token, bias) for token, bias in given.pop("logit_bias", ()))
    stops = tuple(given.pop("stop_token_ids", ()))
    return SamplingParams(
        max_tokens=30, ignore_eos=True, logit_bias=biases, stop_token_ids=stops, **given
    )


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_vllm_says_as_likely_as_vllm_finds_it(name: str, core: EngineCore) -> None:
    for n, prompt in enumerate(THEIRS["prompts"]):
        core.add_request(
            NewRequest(request_id=str(n), prompt_token_ids=prompt, sampling=sampling(CASES[name]))
        )
    token_ids: list[list[int]] = [[] for _ in THEIRS["prompts"]]
    logprobs: list[list[float]] = [[] for _ in THEIRS["prompts"]]
    while core.has_work():
        for result in core.step()[1]:
            token_ids[int(result.request_id)] += result.new_token_ids
            logprobs[int(result.request_id)] += [one.logprob for one in result.logprobs]
    outputs = CASES[name]["outputs"]
    assert token_ids == [output["token_ids"] for output in outputs]
    for found, output in zip(logprobs, outputs, strict=True):
        assert found == pytest.approx(output["logprobs"], abs=2e-4)
