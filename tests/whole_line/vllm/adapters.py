"""LoRA adapters for the tiny Llama, in PEFT's format, with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK = 8
HIDDEN_SIZE = 256
NUM_LAYERS = 4


def write_adapter(directory: Path, seed: int) -> Path:
    """Writes an adapter of the query projections into `directory` and returns it."""
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(NUM_LAYERS):
        place = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        for matrix, shape in (("A", (RANK, HIDDEN_SIZE)), ("B", (HIDDEN_SIZE, RANK))):
            weights = torch.randn(shape, generator=generator)
            tensors[f"{place}.lora_{matrix}.weight"] = weights
    save_file(tensors, directory / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"]}
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return directory
