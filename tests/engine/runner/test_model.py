from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    LlamaConfig,
    Qwen3Config,
)

from engine.runner.kv_tensors import KVShape
from engine.runner.layer_groups import LayerGroup
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_error import ModelError
from engine.runner.model_runner import ModelRunner
from engine.scheduler import Scheduler
from tests.engine.runner.builders import (
    SIZES,
    engine_config,
    request,
    run_all,
)


def test_the_kv_shape_is_the_checkpoints(small_model: LoadedModel) -> None:
    assert small_model.kv_shape == KVShape(
        groups=(LayerGroup((0, 1)),),
        num_kv_heads=2,
        key_dim=8,
        value_dim=8,
        dtype=torch.float32,
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
