"""What an adapter may look like, and why it is refused where it may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from engine.config import LoRAConfig
from engine.lora.adapter_config import CONFIG_FILE, read_config
from engine.lora.adapter_error import AdapterError
from engine.lora.layers import adapt_layers
from engine.lora.reading import WEIGHTS_FILE, Adaptable, read_adapter
from engine.runner.model import load_model
from tests.engine.lora.builders import ATTENTION, change_config, save_adapter
from tests.engine.runner.builders import SIZES, save_model, very_small_llama

Q_PROJ = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def adaptable() -> Adaptable:
    return adapt_layers(very_small_llama(), max_loras=1, max_lora_rank=16).adaptable


@pytest.fixture
def adapter(small_reference: LlamaForCausalLM, tmp_path: Path) -> Path:
    save_adapter(small_reference, tmp_path, **ATTENTION)
    return tmp_path


def change_weights(directory: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(directory / WEIGHTS_FILE)
    change(tensors)
    save_file(tensors, directory / WEIGHTS_FILE)


def test_every_layer_but_that_of_the_logits_can_be_adapted(adaptable: Adaptable) -> None:
    assert len(adaptable.layers) == 2 * 7
    assert adaptable.output_layer == "lm_head"


def test_what_peft_saves_can_be_read(adapter: Path, adaptable: Adaptable) -> None:
    read = read_adapter(adapter, adaptable)
    assert sorted({name.rpartition(".")[2] for name in read.pairs}) == ["q_proj", "v_proj"]
    assert (len(read.pairs), read.rank) == (4, 8)


def test_the_digest_is_of_weights_and_settings(adapter: Path, adaptable: Adaptable) -> None:
    first = read_adapter(adapter, adaptable).digest
    assert read_adapter(adapter, adaptable).digest == first
    change_config(adapter, lora_alpha=17)
    assert read_adapter(adapter, adaptable).digest != first


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"use_dora": True}, "use_dora is True: DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is .'lm_head'.: whole modules"),
        ({"bias": "lora_only"}, "bias is 'lora_only': only none"),
        ({"lora_bias": True}, "lora_bias is True"),
        ({"target_parameters": ["mlp.experts.down_proj"]}, "bare parameters"),
        ({"trainable_token_indices": [1]}, "trained embeddings"),
        ({"alora_invocation_tokens": [1]}, "Activated LoRA"),
        ({"layer_replication": [[0, 2]]}, "replicated layers"),
        ({"init_lora_weights": "pissa_niter_4"}, "changed base weights"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"use_hydra": True}, "use_hydra is True, an option that is not known here"),
        ({"r": 0}, "r is 0"),
        ({"r": 64}, "has rank 64 but max_lora_rank is 16: raise --max-lora-rank"),
        ({"rank_pattern": {"q_proj": 32}}, "has rank 32 but"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        ({"target_modules": "(q_proj"}, "unterminated subpattern"),
        ({"target_modules": 5}, "name modules or give one expression"),
        ({"target_modules": ["q_proj"]}, "differ by 2 modules, the first is .*v_proj"),
        ({"target_modules": ["q_proj", "v_proj", "o_proj"]}, "has no tensors of it"),
        ({"layers_to_transform": [0]}, "differ by 2 modules"),
        ({"exclude_modules": ["v_proj"]}, "differ by 2 modules"),
    ],
)
def test_a_configuration_that_cannot_be_served_is_refused(
    fields: dict[str, Any], complaint: str, adapter: Path, adaptable: Adaptable
) -> None:
    change_config(adapter, **fields)
    with pytest.raises(AdapterError, match=complaint):
        read_adapter(adapter, adaptable)


def _set(name: str, tensor: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.update({name: tensor})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_set(f"{Q_PROJ}.lora_A.weight", torch.ones(8, 47)), r"is \(8, 47\) but has to be \(8, 48"),
        (_set(f"{Q_PROJ}.lora_B.weight", torch.ones(48, 4)), r"is \(48, 4\) but has to be \(48, 8"),
        (lambda tensors: tensors.pop(f"{Q_PROJ}.lora_A.weight"), "lora_A is None"),
        (_set(f"{Q_PROJ}.lora_B.weight", torch.full((48, 8), torch.inf)), "not finite"),
        (_set("base_model.model.lm_head.lora_A.weight", torch.ones(8, 48)), "makes the logits"),
        (_set("base_model.model.model.embed_tokens.lora_embedding_A", torch.ones(8, 9)), "embedd"),
        (_set("base_model.model.h.0.attn.lora_A.weight", torch.ones(8, 48)), "another model"),
        (lambda tensors: tensors.clear(), "no tensors"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    change: Callable[[dict[str, torch.Tensor]], None],
    complaint: str,
    adapter: Path,
    adaptable: Adaptable,
) -> None:
    change_weights(adapter, change)
    with pytest.raises(AdapterError, match=complaint):
        read_adapter(adapter, adaptable)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (CONFIG_FILE, None, "adapter_config.json cannot be read: No such file"),
        (CONFIG_FILE, b"{", "is not JSON"),
        (CONFIG_FILE, b"[]", "holds no JSON object"),
        (WEIGHTS_FILE, None, "local directory with adapter_config.json and adapter_model"),
        (WEIGHTS_FILE, b"junk", "is no safetensors file"),
    ],
)
def test_files_that_are_none_are_refused(
    name: str, content: bytes | None, complaint: str, adapter: Path, adaptable: Adaptable
) -> None:
    (adapter / name).unlink() if content is None else (adapter / name).write_bytes(content)
    with pytest.raises(AdapterError, match=complaint):
        read_adapter(adapter, adaptable)


def test_some_layers_alone_can_be_adapted(
    small_reference: LlamaForCausalLM, tmp_path: Path, adaptable: Adaptable
) -> None:
    save_adapter(small_reference, tmp_path, **ATTENTION, layers_to_transform=[1])
    assert {name.split(".")[2] for name in read_adapter(tmp_path, adaptable).pairs} == {"1"}


def test_patterns_of_ranks_and_alphas_are_pefts(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(
        '{"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["a"],'
        ' "rank_pattern": {"k_proj": 2, "layers.1.k_proj": 4}, "alpha_pattern": {"k_proj": 6}}'
    )
    config = read_config(tmp_path)
    assert (config.rank_of("model.layers.1.k_proj"), config.rank_of("x.q_proj")) == (2, 8)
    assert (config.scaling_of("layers.0.k_proj"), config.scaling_of("q_proj")) == (3.0, 2.0)
    assert config.rank_of("model.fork_proj") == 8


def test_the_layers_of_experts_are_refused(tmp_path: Path) -> None:
    model = MixtralForCausalLM(
        MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    ).eval()
    loaded = load_model(save_model(model, tmp_path), device="cpu", lora=LoRAConfig())
    assert loaded.lora is not None
    assert not any("expert" in name for name in loaded.lora.layers)
