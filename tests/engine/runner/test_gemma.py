"""A real language model gives the tokens of plain `transformers`, also beyond its window."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.runner.cache_directory import default_cache_dir
from engine.runner.model import load_model
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.text.tokenizer import Tokenizer
from tests.engine.runner.builders import TEST_DEVICE, engine_config, plain_choices, request, run_all

GEMMA = default_cache_dir() / "gemma3-270m-float32"
BOS = 2
WINDOW = 512

pytestmark = pytest.mark.skipif(
    not (GEMMA / "config.json").is_file(),
    reason="gemma3-270m has not been unpacked here; `stepscope serve gemma3-270m` does it",
)


def test_gemma_goes_on_as_transformers_does() -> None:
    tokenizer = Tokenizer.load(GEMMA)
    assert tokenizer is not None
    story = "The ship left the harbour at dawn, and the harbour was quiet again. " * 45
    prompts = [tokenizer.encode("The capital of France is"), tokenizer.encode(story)]
    assert [prompt[0] for prompt in prompts] == [BOS, BOS]
    assert len(prompts[1]) > WINDOW

    model = load_model(GEMMA, device=TEST_DEVICE)
    groups = model.kv_groups(16)
    assert [group.kind for group in groups] == ["full", *["sliding_window"] * 5]
    config = engine_config(
        num_blocks=400, block_size=16, budget=256, max_model_len=1024, groups=groups
    )
    sampling = SamplingParams(max_tokens=8, ignore_eos=True)
    requests = [request(n, prompt, sampling) for n, prompt in enumerate(prompts)]
    tokens = run_all(Scheduler(config), ModelRunner(model, config), requests)

    plain = AutoModelForCausalLM.from_pretrained(GEMMA, dtype=torch.float32).eval()
    for n, prompt in enumerate(prompts):
        assert tokens[f"r{n}"] == plain_choices(plain, prompt, tokens[f"r{n}"])[0]
