"""Models that paged attention cannot serve are refused, and told why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine.runner.attention_needs import LayerNeeds, ask_layers
from engine.runner.model import load_model
from engine.runner.model_error import ModelError
from tests.engine.runner.builders import SIZES, save_model

MAMBA_SIZES = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
ENCODER_SIZES = {"vocab_size": 96, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2}

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an encoder and a decoder": (
        lambda: t.T5ForConditionalGeneration(t.T5Config(**ENCODER_SIZES, num_heads=4)),
        "has an encoder: only decoders",
    ),
    "no attention": (
        lambda: t.MambaForCausalLM(t.MambaConfig(**MAMBA_SIZES)),
        "has attention that cannot be replaced",
    ),
    "an encoder that sees later tokens": (
        lambda: t.BertLMHeadModel(
            t.BertConfig(**{k: v for k, v in SIZES.items() if "key_value" not in k})
        ),
        "model type 'bert' has",
    ),
    "recurrent layers between the others": (
        lambda: t.JambaForCausalLM(
            t.JambaConfig(
                **{**SIZES, "num_hidden_layers": 4},
                attn_layer_period=2,
                attn_layer_offset=1,
                num_experts=1,
                use_mamba_kernels=False,
            )
        ),
        "model type 'jamba' has",
    ),
    "a window that only its mask knows": (
        lambda: _with(t.LlamaForCausalLM(t.LlamaConfig(**SIZES)), sliding_window=16),
        r"a sliding window \(16\) that its layers do not ask for",
    ),
}


def _with(model: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(model.config, name, value)
    return model


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_served_is_refused(kind: str, tmp_path: Path) -> None:
    make, says = REFUSED[kind]
    save_model(make(), tmp_path)
    with pytest.raises(ModelError, match=says):
        load_model(tmp_path, device="cpu")


def test_layers_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    config = t.Qwen3Config(**SIZES).to_dict()
    config["layer_types"] = ["full_attention", "linear_attention"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="has linear_attention"):
        load_model(tmp_path, device="cpu")


def test_a_layer_is_asked_and_the_model_is_as_it_was() -> None:
    config = t.MistralConfig(**SIZES, sliding_window=10)
    model = t.MistralForCausalLM(config).eval()
    tokens = torch.tensor([[3, 4, 5]])
    before = model(input_ids=tokens).logits
    needs = LayerNeeds(
        num_heads=4,
        num_kv_heads=2,
        key_dim=8,
        value_dim=8,
        sliding_window=10,
        scaling=8**-0.5,
    )
    assert ask_layers(model, config) == (needs, needs)
    assert torch.equal(model(input_ids=tokens).logits, before)


def test_a_window_that_contradicts_the_configuration_is_refused() -> None:
    config = t.MistralConfig(**SIZES, sliding_window=10)
    config.layer_types = ["sliding_attention", "full_attention"]
    model = t.MistralForCausalLM(config)
    with pytest.raises(ModelError, match="layer 1 asking for a window of 10"):
        ask_layers(model, config)
