from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
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
    plain_choices,
    request,
    run_all,
    save_model,
    very_small_llama,
)


def test_the_kv_shape_is_the_checkpoints(small_model: LoadedModel) -> None:
    assert small_model.kv_shape == KVShape(
        groups=(LayerGroup((0, 1)),),
        num_kv_heads=2,
        key_dim=8,
        value_dim=8,
        dtype=torch.float32,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_short_dtype_is_that_of_weights_and_cache(dtype: Any, small_checkpoint: Path) -> None:
    model = load_model(small_checkpoint, dtype=dtype, device="cpu")
    config = engine_config()
    runner = ModelRunner(model, config)
    tokens = run_all(Scheduler(config), runner, [request(0, [5, 6, 7])])
    wanted = getattr(torch, dtype)
    assert {p.dtype for p in model.module.parameters()} == {wanted}
    assert runner.kv_cache.layers[0].dtype == wanted
    plain = AutoModelForCausalLM.from_pretrained(small_checkpoint, dtype=wanted)
    assert tokens["r0"][:8] == plain_choices(plain, [5, 6, 7], tokens["r0"])[0][:8]


def test_auto_is_the_checkpoints_dtype(tmp_path: Path) -> None:
    save_model(very_small_llama().to(torch.bfloat16), tmp_path)
    assert load_model(tmp_path, device="cpu").dtype == torch.bfloat16


def test_a_checkpoint_in_shards_is_one_model(
    small_reference: LlamaForCausalLM, small_model: LoadedModel, tmp_path: Path
) -> None:
    save_model(small_reference, tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = load_model(tmp_path, device="cpu").module.state_dict()
    assert all(torch.equal(loaded[name], w) for name, w in small_model.module.state_dict().items())


def test_loading_says_nothing(small_checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(small_checkpoint, device="cpu")
    assert capfd.readouterr() == ("", "")


def test_a_checkpoint_without_weights_is_refused(tmp_path: Path) -> None:
    LlamaConfig(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        load_model(tmp_path, device="cpu")


def test_a_device_that_is_not_there_is_refused(small_checkpoint: Path) -> None:
    with pytest.raises(ModelError, match="device is 'mps'"):
        load_model(small_checkpoint, device="mps")
