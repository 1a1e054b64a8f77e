from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.runner.kv_tensors import KVShape
from engine.runner.model import LoadedModel, ModelError, load_model
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from tests.engine.runner.builders import (
    engine_config,
    reference_tokens,
    request,
    run_all,
    save_model,
)

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
}

FAMILIES: dict[str, Callable[[], torch.nn.Module]] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)),
    "mistral with a sliding window": lambda: MistralForCausalLM(
        MistralConfig(**SIZES, sliding_window=10)
    ),
    "gemma3 with sliding and full layers": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **SIZES, sliding_window=10, layer_types=["sliding_attention", "full_attention"]
        )
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_give_the_tokens_of_transformers(family: str, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        save_model(FAMILIES[family](), tmp_path)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    model = load_model(tmp_path, dtype="float32", device="cpu")
    config = engine_config(budget=16)
    sampling = SamplingParams(max_tokens=24, ignore_eos=True)
    prompts = [[2, 5, 9, 30, 31], list(range(3, 40))]
    requests = [request(n, prompt, sampling) for n, prompt in enumerate(prompts)]
    tokens = run_all(Scheduler(config), ModelRunner(model, config), requests)
    expected = [reference_tokens(reference, prompt, 24)[0] for prompt in prompts]
    assert [tokens["r0"], tokens["r1"]] == expected


def test_the_kv_shape_is_the_checkpoints(small_model: LoadedModel) -> None:
    assert small_model.kv_shape == KVShape(
        num_layers=2, num_kv_heads=2, head_dim=8, dtype=torch.float32
    )


def test_bfloat16_is_weights_and_cache_alike(small_checkpoint: Path) -> None:
    model = load_model(small_checkpoint, dtype="bfloat16", device="cpu")
    config = engine_config()
    runner = ModelRunner(model, config)
    tokens = run_all(Scheduler(config), runner, [request(0, [5, 6, 7])])
    assert {p.dtype for p in model.module.parameters()} == {torch.bfloat16}
    assert runner.kv_cache.layers[0].dtype == torch.bfloat16
    assert len(tokens["r0"]) == 64


def test_loading_says_nothing(small_checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(small_checkpoint, device="cpu")
    assert capfd.readouterr() == ("", "")


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json: give a local directory"):
        load_model(tmp_path)


def test_a_checkpoint_without_weights_is_refused(tmp_path: Path) -> None:
    LlamaConfig(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        load_model(tmp_path, device="cpu")


def test_layers_without_attention_are_refused(tmp_path: Path) -> None:
    config = Qwen3Config(**SIZES).to_dict()
    config["layer_types"] = ["full_attention", "linear_attention"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="linear_attention"):
        load_model(tmp_path, device="cpu")


def test_a_device_that_is_not_there_is_refused(small_checkpoint: Path) -> None:
    with pytest.raises(ModelError, match="device is 'mps'"):
        load_model(small_checkpoint, device="mps")
