from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from engine.runner.model import LoadedModel, load_model
from engine.structured_output.compiler import GrammarCompiler
from engine.text.tokenizer import Tokenizer
from tests.engine.runner.builders import save_model
from tests.engine.structured_output.builders import VOCAB_SIZE, small_llama, write_tokenizer


@dataclass(frozen=True)
class Small:
    """A very small model, plain and loaded for the engine, with tokenizer and compiler."""

    directory: Path
    plain: LlamaForCausalLM
    model: LoadedModel
    tokenizer: Tokenizer
    compiler: GrammarCompiler


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    plain = small_llama()
    directory = save_model(plain, tmp_path_factory.mktemp("small"))
    tokenizer = write_tokenizer(directory)
    model = load_model(directory, dtype="float32", device="cpu")
    compiler = GrammarCompiler(directory, vocab_size=VOCAB_SIZE, eos_token_ids=model.eos_token_ids)
    return Small(directory, plain, model, tokenizer, compiler)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Very small models are faster on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
