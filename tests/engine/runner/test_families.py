"""Families other than Llama give the tokens of plain `transformers`, whatever happens meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine.runner.layer_groups import LayerGroup
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.output import SchedulerOutput
from telemetry.recorder import ListRecorder
from telemetry.records import RequestAdmitted
from telemetry.vocabulary import EventKind
from tests.engine.runner.builders import (
    SIZES,
    TEST_DEVICE,
    engine_config,
    plain_choices,
    request,
    run_all,
    save_model,
)

NUM_REQUESTS = 12
RESET_AFTER_STEP = 30
TIE = 1e-4
"""Two best logits nearer than this may change places with the order of additions."""

MIXED = {"sliding_window": 10, "layer_types": ["sliding_attention", "full_attention"]}
SIX_LAYERS = {
    **SIZES,
    "num_hidden_layers": 6,
    "sliding_window": 10,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
GPT2_SIZES = {
    "vocab_size": 96,
    "n_positions": 512,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
}
LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}

FAMILIES: dict[str, tuple[Callable[[], Any], list[int | None]]] = {
    "qwen2": (lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**SIZES)), [None]),
    "qwen3": (lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**SIZES)), [None]),
    "mistral with a sliding window": (
        lambda: t.MistralForCausalLM(t.MistralConfig(**SIZES, sliding_window=10)),
        [10],
    ),
    "gemma 3 with two KV groups": (
        lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**SIZES, **MIXED)),
        [None, 10],
    ),
    "gemma 3 with three KV groups": (
        lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**SIX_LAYERS)),
        [None, 10, 10],
    ),
    "gemma 2 with soft caps": (
        lambda: t.Gemma2ForCausalLM(
            t.Gemma2Config(**SIZES, **MIXED, attn_logit_softcapping=2.0, query_pre_attn_scalar=8)
        ),
        [None, 10],
    ),
    "mixtral": (lambda: t.MixtralForCausalLM(t.MixtralConfig(**SIZES, **EXPERTS)), [None]),
    "qwen3 with experts": (
        lambda: t.Qwen3MoeForCausalLM(
            t.Qwen3MoeConfig(
                **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
            )
        ),
        [None],
    ),
    "gpt-oss with attention sinks": (
        lambda: t.GptOssForCausalLM(t.GptOssConfig(**SIZES, **MIXED, **EXPERTS)),
        [None, 10],
    ),
    "deepseek 3 with narrower values": (
        lambda: t.DeepseekV3ForCausalLM(
            t.DeepseekV3Config(**{**SIZES, "num_key_value_heads": 4, "head_dim": 4}, **LATENT)
        ),
        [None],
    ),
    "gpt2 with learned positions": (lambda: t.GPT2LMHeadModel(t.GPT2Config(**GPT2_SIZES)), [None]),
}


def prompts() -> list[list[int]]:
    """Returns prompts of 5 to 60 tokens, some of which begin alike."""
    rng = random.Random(1)
    prefix = [rng.randrange(3, 96) for _ in range(24)]
    return [
        [*(prefix if n % 3 == 0 else []), *(rng.randrange(3, 96) for _ in range(5 + 3 * n))]
        for n in range(NUM_REQUESTS)
    ]


def saved(make: Callable[[], Any], directory: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return save_model(make().eval(), directory)


def pressed(model: LoadedModel) -> tuple[dict[str, list[int]], ListRecorder]:
    """Runs the prompts through small steps and a pool that is too small for all of them.

    In mid-run all running requests lose their blocks: windows alone hardly ever run short.
    """
    groups = model.kv_groups(8)
    num_blocks = sum(24 if group.kind == "full" else 10 for group in groups)
    config = engine_config(
        num_blocks=num_blocks, budget=24, max_num_seqs=8, max_model_len=128, groups=groups
    )
    recorder = ListRecorder()
    scheduler = Scheduler(config, recorder=recorder)
    sampling = SamplingParams(max_tokens=40, ignore_eos=True)

    def after_step(output: SchedulerOutput) -> None:
        scheduler.check_integrity()
        if output.step == RESET_AFTER_STEP:
            assert scheduler.reset_prefix_cache(reset_running=True)

    tokens = run_all(
        scheduler,
        ModelRunner(model, config),
        [request(n, prompt, sampling) for n, prompt in enumerate(prompts())],
        arrivals_per_step=1,
        after_step=after_step,
    )
    return tokens, recorder


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_under_pressure_gives_the_tokens_of_plain_transformers(
    family: str, tmp_path: Path
) -> None:
    make, windows = FAMILIES[family]
    saved(make, tmp_path)
    model = load_model(tmp_path, dtype="float32", device=TEST_DEVICE)
    assert [group.sliding_window for group in model.kv_shape.groups] == windows

    tokens, recorder = pressed(model)
    assert sum(event.kind == EventKind.preempted for event in recorder.events) >= 2
    admissions = [event for event in recorder.events if isinstance(event, RequestAdmitted)]
    assert sum(bool(event.num_hit_tokens) for event in admissions) >= 1

    # "eager": the default drops Gemma 2's soft cap.
    plain = t.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    assert len({token for outputs in tokens.values() for token in outputs}) > 20
    num_ties = 0
    for n, prompt in enumerate(prompts()):
        choices, margins = plain_choices(plain, prompt, tokens[f"r{n}"])
        apart = [
            i
            for i, pair in enumerate(zip(tokens[f"r{n}"], choices, strict=True))
            if pair[0] != pair[1]
        ]
        assert all(margins[i] <= TIE for i in apart), f"r{n} differs at {apart}"
        num_ties += len(apart)
    assert num_ties <= 3


def test_the_layers_of_a_window_are_spread_over_groups_as_long_as_the_full_one(
    tmp_path: Path,
) -> None:
    make, _ = FAMILIES["gemma 3 with three KV groups"]
    model = load_model(saved(make, tmp_path), device=TEST_DEVICE)
    assert model.kv_shape.groups == (
        LayerGroup((2, 5)),
        LayerGroup((0, 3), 10),
        LayerGroup((1, 4), 10),
    )
