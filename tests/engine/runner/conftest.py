from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from engine.runner.model import LoadedModel, load_model
from tests.engine.runner.builders import TEST_DEVICE, save_model, very_small_llama


@pytest.fixture(scope="session")
def small_reference() -> LlamaForCausalLM:
    """A very small Llama with the attention that `transformers` gives it."""
    return very_small_llama()


@pytest.fixture(scope="session")
def small_checkpoint(
    small_reference: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return save_model(small_reference, tmp_path_factory.mktemp("small-llama"))


@pytest.fixture(scope="session")
def small_model(small_checkpoint: Path) -> LoadedModel:
    """The same Llama, loaded with paged attention."""
    return load_model(small_checkpoint, dtype="float32", device=TEST_DEVICE)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Very small models are faster on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
