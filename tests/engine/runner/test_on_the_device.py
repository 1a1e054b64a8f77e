"""A model in bfloat16 with each kernel that its device has, and with graphs: right up to rounding.

On a CPU that is gathering alone, and graphs stand in. `make gpu-check` runs it on CUDA.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from engine.compilation import AttentionBackendName
from engine.config import EngineConfig
from engine.request import Request
from engine.runner.graphs import CudaCapturer, RerunCapturer
from engine.runner.kernels.choice import ModelNeeds, maker, why_not
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.output import GraphMode
from telemetry.recorder import ListRecorder
from tests.engine.runner.builders import (
    TEST_DEVICE,
    engine_config,
    plain_choices,
    request,
    run_all,
    save_model,
)

TIE = 0.1
"""Two logits of a model in bfloat16 that lie nearer than this may change places."""

KERNELS: list[tuple[AttentionBackendName, int]] = [("TORCH_SDPA", 16)]
"""Kernels with the size of their blocks."""

if TEST_DEVICE == "cuda":
    KERNELS += [("FLASHINFER", 16), ("FLASH_ATTN", 16), ("FLASH_ATTN", 256), ("FLEX_ATTENTION", 16)]

SIZES = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "initializer_range": 0.08,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def full() -> torch.nn.Module:
    return LlamaForCausalLM(LlamaConfig(**SIZES))  # type: ignore[arg-type]


def windowed() -> torch.nn.Module:
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=40))  # type: ignore[arg-type]


def load(kind: str, directory: Path) -> tuple[torch.nn.Module, LoadedModel]:
    """Returns the reference, in float32 on the CPU, and the model in bfloat16 on the device."""
    torch.manual_seed(5)
    module = {"full": full, "windowed": windowed}[kind]().to(torch.bfloat16).float().eval()
    saved = save_model(module, directory)
    return module, load_model(saved, dtype="bfloat16", device=TEST_DEVICE)


def requests() -> list[Request]:
    rng = random.Random(9)
    lengths = [3, 9, 17, 60, 100, 130, 31, 16]
    return [
        request(
            n,
            [rng.randrange(2, 512) for _ in range(length)],
            SamplingParams(max_tokens=24, ignore_eos=True),
        )
        for n, length in enumerate(lengths)
    ]


def run(
    model: LoadedModel, kernel: AttentionBackendName, config: EngineConfig, *, with_graphs: bool
) -> tuple[dict[str, list[int]], Counter[int | None]]:
    needs = ModelNeeds(
        layers=model.layers,
        shape=model.kv_shape,
        block_size=config.cache.block_size,
        device=model.device,
    )
    reason = why_not(kernel, needs)
    if reason is not None:
        pytest.skip(f"{kernel} cannot be used here: {reason}")
    runner = ModelRunner(model, config, attention=maker(kernel, needs))
    if with_graphs:
        on_cuda = model.device.type == "cuda"
        runner.capture_graphs(CudaCapturer(model.device) if on_cuda else RerunCapturer())
    recorder = ListRecorder()
    tokens = run_all(Scheduler(config, recorder=recorder), runner, requests(), arrivals_per_step=2)
    return tokens, Counter(row.graph_mode for row in recorder.steps if row.num_scheduled_tokens)


@pytest.mark.parametrize(("kernel", "block_size"), KERNELS)
@pytest.mark.parametrize("kind", ["full", "windowed"])
@pytest.mark.parametrize("with_graphs", [False, True], ids=["eager", "graphs"])
def test_a_model_is_right_up_to_rounding(
    kernel: AttentionBackendName,
    block_size: int,
    kind: str,
    with_graphs: bool,
    tmp_path: Path,
) -> None:
    reference, model = load(kind, tmp_path)
    config = engine_config(
        num_blocks=80, block_size=block_size, budget=96, max_num_seqs=8, max_model_len=256
    )
    config = replace(config, cache=replace(config.cache, groups=model.kv_groups(block_size)))
    tokens, modes = run(model, kernel, config, with_graphs=with_graphs)
    for each in requests():
        got = tokens[each.request_id]
        chosen, margins = plain_choices(reference, each.prompt_token_ids, got)
        wrong = [i for i, pair in enumerate(zip(got, chosen, strict=True)) if pair[0] != pair[1]]
        assert all(margins[i] <= TIE for i in wrong), (each.request_id, wrong)
    assert bool(modes[GraphMode.FULL]) == (with_graphs and kernel != "FLEX_ATTENTION")
