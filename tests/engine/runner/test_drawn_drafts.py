"""The whole runner with drawn drafts: texts are distributed as the model alone would have them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.config import SpeculationConfig
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_drafter import ModelDrafter
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from telemetry.recorder import ListRecorder
from tests.engine.runner.builders import engine_config, request, run_all, save_model
from tests.engine.runner.chi_square import p_value
from tests.engine.runner.speculating import perturbed

VOCAB = 32
PROMPT = [5, 9]
NUM_REQUESTS = 20_480
NUM_DRAFTS = 2
TEMPERATURE = 0.9
ENOUGH = 0.001


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        initializer_range=0.6,
        eos_token_id=1,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = LlamaForCausalLM(config).eval()
    return save_model(model, tmp_path_factory.mktemp("vocabulary-of-32"))


def texts_of(target: LoadedModel, draft: LoadedModel) -> tuple[list[list[int]], ListRecorder]:
    """Returns three outputs of each request behind the same prompt, and the record."""
    config = engine_config(
        num_blocks=1100,
        block_size=16,
        max_num_seqs=512,
        budget=4096,
        max_model_len=16,
        speculation=SpeculationConfig(
            num_speculative_tokens=NUM_DRAFTS,
            num_lookahead_tokens=NUM_DRAFTS,
            draft_slots_per_request=1,
        ),
    )
    drafter = ModelDrafter(
        draft,
        config.cache.kv_groups,
        num_speculative_tokens=NUM_DRAFTS,
        how="probabilistic",
        num_blocks=config.cache.num_gpu_blocks,
        max_model_len=16,
    )
    recorder = ListRecorder()
    requests = [
        request(
            n,
            PROMPT,
            SamplingParams(max_tokens=3, ignore_eos=True, temperature=TEMPERATURE, seed=n),
        )
        for n in range(NUM_REQUESTS)
    ]
    tokens = run_all(
        Scheduler(config, recorder=recorder),
        ModelRunner(target, config, drafter=drafter),
        requests,
        arrivals_per_step=512,
    )
    return list(tokens.values()), recorder


@torch.inference_mode()
def shares_behind(model: torch.nn.Module, before: torch.Tensor) -> torch.Tensor:
    """Returns what `transformers` gives for the next token, `[len(before), VOCAB]`."""
    logits = model(input_ids=before, use_cache=False).logits[:, -1]
    shares: torch.Tensor = (logits / TEMPERATURE).softmax(dim=-1)
    return shares


def test_pairs_and_third_tokens_are_distributed_as_the_models(checkpoint: Path) -> None:
    target = load_model(checkpoint, dtype="float32", device="cpu")
    draft = perturbed(load_model(checkpoint, dtype="float32", device="cpu"), share=0.3)
    texts, recorder = texts_of(target, draft)
    num_placed = sum(step.num_draft_tokens or 0 for step in recorder.steps)
    num_accepted = sum(step.num_accepted or 0 for step in recorder.steps)
    assert 0.2 < num_accepted / num_placed < 0.95

    plain = LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    every = torch.arange(VOCAB)
    pairs = torch.cartesian_prod(every, every)
    first = shares_behind(plain, torch.tensor([PROMPT]))
    second = shares_behind(plain, torch.cat((torch.tensor([PROMPT] * VOCAB), every[:, None]), 1))
    third = shares_behind(plain, torch.cat((torch.tensor([PROMPT] * len(pairs)), pairs), 1))
    counts = torch.zeros(VOCAB, VOCAB, VOCAB)
    for text in texts:
        counts[tuple(text)] += 1
    joint = (first[0][:, None] * second).reshape(1, -1)
    last = joint @ third
    assert p_value(counts.sum(2).reshape(1, -1), joint) > ENOUGH
    assert p_value(counts.sum((0, 1))[None], last) > ENOUGH
    assert p_value(counts.reshape(-1, VOCAB), third) > ENOUGH
