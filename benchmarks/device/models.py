"""Llamas of usual sizes with random weights, made on the device: how fast is all that is asked."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from engine.runner.attention import ATTENTION_NAME, register
from engine.runner.model import LoadedModel, ready_model

MAX_POSITIONS = 8192

SIZES: dict[str, dict[str, int]] = {
    "1B": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
    "8B": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "tiny": {
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
}
"""Shapes of Llama 3.2 1B and Llama 3.1 8B, and one to try the code with."""


@torch.inference_mode()
def random_llama(size: str, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    """Returns a Llama of a size, ready to run."""
    register()
    config = LlamaConfig(
        **SIZES[size],  # type: ignore[arg-type]
        max_position_embeddings=MAX_POSITIONS,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=size == "1B",
    )
    torch.manual_seed(0)
    with device:
        module = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=ATTENTION_NAME
        )
    return ready_model(module, config, name=f"random-llama-{size}", dtype=dtype)
