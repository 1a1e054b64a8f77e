"""Builders: adapters that PEFT makes and saves, and an engine's runner that serves them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import peft
import torch

from engine.config import EngineConfig, LoRAConfig
from engine.lora.adapter_config import CONFIG_FILE
from engine.lora.module_spec import AdapterModule
from engine.lora.reading import read_adapter
from engine.lora.store import AdapterStore
from engine.runner.model import LoadedModel, load_model
from tests.engine.runner.builders import TEST_DEVICE

ATTENTION: dict[str, Any] = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
ALL_LINEAR: dict[str, Any] = {
    "r": 4,
    "lora_alpha": 8,
    "target_modules": "all-linear",
    "use_rslora": True,
}
PATTERNS: dict[str, Any] = {
    "r": 16,
    "lora_alpha": 8,
    "target_modules": r".*\.(gate|o)_proj",
    "rank_pattern": {"o_proj": 2, r"layers\.0\.mlp\.gate_proj": 3},
    "alpha_pattern": {"o_proj": 5},
}
THREE: dict[str, dict[str, Any]] = {"sql": ATTENTION, "chat": ALL_LINEAR, "legal": PATTERNS}
"""Adapters that differ in what they adapt, and in every way to say how strongly."""


def save_adapter(base: torch.nn.Module, directory: Path, seed: int = 1, **options: Any) -> Any:
    """Saves a random adapter whose two halves are both not zero; returns PEFT's model with it."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapted = peft.get_peft_model(copy.deepcopy(base), config).eval()
    adapted.save_pretrained(directory)
    return adapted


def change_config(directory: Path, **fields: Any) -> None:
    path = directory / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@dataclass
class Served:
    """A model with adapters, and what PEFT makes of each; the plain model is `None`'s."""

    model: LoadedModel
    store: AdapterStore
    references: dict[str | None, torch.nn.Module]


def serve_adapters(
    checkpoint: Path,
    base: torch.nn.Module,
    directory: Path,
    adapters: Mapping[str, Mapping[str, Any]] = THREE,
    *,
    max_loras: int = 4,
) -> Served:
    """Saves adapters of a model and loads model and adapters as an engine does."""
    model = load_model(
        checkpoint, dtype="float32", device=TEST_DEVICE, lora=LoRAConfig(max_loras=max_loras)
    )
    assert model.lora is not None
    adaptable = model.lora.adaptable
    store = AdapterStore(lambda path: read_adapter(path, adaptable), max_cpu_loras=len(adapters))
    references: dict[str | None, torch.nn.Module] = {None: base}
    for seed, (name, options) in enumerate(adapters.items()):
        references[name] = save_adapter(base, directory / name, seed, **options)
        store.load(AdapterModule(name=name, path=directory / name))
    return Served(model, store, references)


def with_max_loras(config: EngineConfig, max_loras: int | None) -> EngineConfig:
    return replace(config, scheduler=replace(config.scheduler, max_loras=max_loras))
