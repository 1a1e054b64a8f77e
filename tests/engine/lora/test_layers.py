"""What adapters add to a model's layers, and what they leave alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaForCausalLM

from engine.config import LoRAConfig
from engine.lora.layers import (
    MAX_MASKED,
    NO_ADAPTER,
    AdapterMapping,
    LoRALayers,
    adapt_layers,
)
from engine.lora.reading import LoadedAdapter, LowRankPair, read_adapter
from engine.runner.model import load_model
from tests.engine.lora.builders import ALL_LINEAR, ATTENTION, save_adapter
from tests.engine.runner.builders import very_small_llama

NUM_TOKENS = MAX_MASKED + 40


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> tuple[LlamaForCausalLM, LoRALayers]:
    """A model with two adapters, in slots 0 and 2 of three."""
    base = very_small_llama()
    directory: Path = tmp_path_factory.mktemp("adapters")
    save_adapter(base, directory / "a", **ATTENTION)
    save_adapter(base, directory / "b", 2, **ALL_LINEAR)
    lora = adapt_layers(base, max_loras=3, max_lora_rank=16)
    for slot, name in ((0, "a"), (2, "b")):
        lora.place(slot, read_adapter(directory / name, lora.adaptable))
    return base, lora


@torch.inference_mode()
def logits(
    model: LlamaForCausalLM, lora: LoRALayers, mapping: AdapterMapping | None, num_tokens: int
) -> torch.Tensor:
    lora.active.mapping = mapping
    tokens = torch.arange(num_tokens)[None] % 100 + 2
    found: torch.Tensor = model(tokens, use_cache=False).logits[0]
    return found


@pytest.mark.parametrize("num_tokens", [12, NUM_TOKENS])
def test_tokens_mixed_anyhow_get_what_each_adapter_alone_gives(
    num_tokens: int, adapted: tuple[LlamaForCausalLM, LoRALayers]
) -> None:
    layer = adapted[0].model.layers[0].self_attn.q_proj
    lora = adapted[1]
    given = torch.randn(1, num_tokens, 48, generator=torch.Generator().manual_seed(1))
    slots = np.random.default_rng(1).choice([NO_ADAPTER, 0, 2], num_tokens)

    def output(which: np.ndarray) -> torch.Tensor:
        lora.active.mapping = lora.mapping(which)
        with torch.inference_mode():
            return layer(given)[0]

    mixed = output(slots)
    for slot in (NO_ADAPTER, 0, 2):
        alone = output(np.full(num_tokens, slot))
        torch.testing.assert_close(mixed[slots == slot], alone[slots == slot])


@pytest.mark.parametrize("slots", [[0, 0, 2, -1, 2], [-1, -1], [2, 2]])
def test_a_mapping_for_graphs_reads_its_slots_anew(
    slots: list[int], adapted: tuple[LlamaForCausalLM, LoRALayers]
) -> None:
    model, lora = adapted
    buffer = torch.full((len(slots),), NO_ADAPTER)
    buffer.copy_(torch.tensor(slots))
    static = logits(model, lora, lora.static_mapping(buffer), len(slots))
    eager = logits(model, lora, lora.mapping(np.array(slots)), len(slots))
    torch.testing.assert_close(static, eager)


class Operations(TorchDispatchMode):
    """Counts the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_batch_without_adapters_runs_the_operations_of_the_plain_model(
    adapted: tuple[LlamaForCausalLM, LoRALayers],
) -> None:
    model, lora = adapted
    plain = very_small_llama()
    with Operations() as expected:
        wanted = logits(plain, lora, None, 6)
    with Operations() as found:
        got = logits(model, lora, lora.mapping(np.full(6, NO_ADAPTER)), 6)
    assert found.count == expected.count
    assert torch.equal(got, wanted)


def test_a_layer_goes_on_multiplying_as_it_did(small_checkpoint: Path) -> None:
    plain = load_model(small_checkpoint, dtype="float32", device="cpu")
    adapted = load_model(small_checkpoint, dtype="float32", device="cpu", lora=LoRAConfig())
    assert adapted.lora is not None
    for name in adapted.lora.layers:
        before, after = plain.module.get_submodule(name), adapted.module.get_submodule(name)
        assert type(before) in type(after).__mro__[2:]


def test_a_token_that_anothers_adapter_would_overflow_is_as_without_it() -> None:
    model = very_small_llama()
    lora = adapt_layers(model, max_loras=2, max_lora_rank=1)
    name = "model.layers.0.self_attn.q_proj"
    for slot, size in ((0, 1e38), (1, 0.01)):
        pair = LowRankPair(down=torch.full((1, 48), size), up=torch.full((1, 48), 1e-38))
        lora.place(slot, LoadedAdapter(digest="", rank=1, pairs={name: pair}))
    layer = model.get_submodule(name)
    given = torch.ones(1, 2, 48)

    def second_token(slots: list[int]) -> torch.Tensor:
        lora.active.mapping = lora.mapping(np.array(slots))
        with torch.inference_mode():
            return layer(given)[0, 1]

    assert torch.equal(second_token([0, 1]), second_token([1, 1]))


def test_a_slot_keeps_nothing_of_the_adapter_before(
    adapted: tuple[LlamaForCausalLM, LoRALayers], tmp_path: Path
) -> None:
    model = very_small_llama()
    lora = adapt_layers(model, max_loras=1, max_lora_rank=16)
    save_adapter(very_small_llama(), tmp_path / "wide", r=16, target_modules="all-linear")
    save_adapter(very_small_llama(), tmp_path / "thin", r=2, target_modules=["q_proj"])
    thin = read_adapter(tmp_path / "thin", lora.adaptable)
    slots = torch.zeros(6, dtype=torch.int64)
    lora.place(0, thin)
    wanted = logits(model, lora, lora.static_mapping(slots), 6)
    lora.place(0, read_adapter(tmp_path / "wide", lora.adaptable))
    lora.place(0, thin)
    assert torch.equal(logits(model, lora, lora.static_mapping(slots), 6), wanted)


def test_a_layer_that_sees_other_tokens_than_the_batch_is_found_out(
    adapted: tuple[LlamaForCausalLM, LoRALayers],
) -> None:
    model, lora = adapted
    with pytest.raises(RuntimeError, match="saw 5 tokens of 4"):
        logits(model, lora, lora.mapping(np.zeros(4, np.int64)), 5)
