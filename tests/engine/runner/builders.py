"""Builders: deltas as the scheduler would send them, small checkpoints, an engine's inner loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from engine.config import (
    CacheConfig,
    EngineConfig,
    KVGroupConfig,
    SchedulerConfig,
    SpeculationConfig,
)
from engine.request import Request
from engine.runner import Runner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.output import (
    CachedRequestData,
    NewRequestData,
    RequestOutput,
    SchedulerOutput,
)

TEST_DEVICE = os.environ.get("STEPSCOPE_TEST_DEVICE", "cpu")
"""Where the models under test run; references run on the CPU."""

GREEDY = SamplingParams(max_tokens=64, ignore_eos=True)


def new(
    request_id: str,
    prompt: Sequence[int],
    blocks: list[int],
    *,
    num_computed: int = 0,
    sampling: SamplingParams = GREEDY,
) -> NewRequestData:
    return NewRequestData(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling=sampling,
        block_ids=(blocks,),
        num_computed_tokens=num_computed,
    )


def running(
    request_id: str, num_computed: int, num_outputs: int, blocks: list[int] | None = None
) -> CachedRequestData:
    return CachedRequestData(
        request_id=request_id,
        new_block_ids=None if blocks is None else (blocks,),
        num_computed_tokens=num_computed,
        num_output_tokens=num_outputs,
    )


def resumed(
    request_id: str, tokens: Sequence[int], num_outputs: int, blocks: list[int]
) -> CachedRequestData:
    return CachedRequestData(
        request_id=request_id,
        new_block_ids=(blocks,),
        num_computed_tokens=0,
        num_output_tokens=num_outputs,
        resumed=True,
        all_token_ids=tokens,
    )


def step(
    scheduled: dict[str, int],
    *requests: NewRequestData | CachedRequestData,
    finished: Sequence[str] = (),
    preempted: Sequence[str] = (),
) -> SchedulerOutput:
    return SchedulerOutput(
        step=0,
        scheduled_new_reqs=tuple(r for r in requests if isinstance(r, NewRequestData)),
        other_cached_reqs=tuple(r for r in requests if isinstance(r, CachedRequestData)),
        other_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        finished_req_ids=frozenset(finished),
        preempted_req_ids=frozenset(preempted),
    )


def engine_config(
    *,
    num_blocks: int = 512,
    block_size: int = 8,
    max_num_seqs: int = 32,
    budget: int = 512,
    max_model_len: int = 512,
    policy: str = "fcfs",
    groups: tuple[KVGroupConfig, ...] = (),
    speculation: SpeculationConfig | None = None,
) -> EngineConfig:
    return EngineConfig(
        speculation=speculation or SpeculationConfig(),
        scheduler=SchedulerConfig(
            policy=policy,  # type: ignore[arg-type]
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=max_model_len,
        ),
        cache=CacheConfig(block_size=block_size, num_gpu_blocks=num_blocks, groups=groups),
    )


def request(
    number: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY, *, priority: int = 0
) -> Request:
    return Request(
        request_id=f"r{number}",
        number=number,
        prompt_token_ids=prompt,
        sampling=sampling,
        arrival_time=float(number),
        priority=priority,
    )


def run_step(scheduler: Scheduler, runner: Runner) -> tuple[SchedulerOutput, list[RequestOutput]]:
    output = scheduler.schedule()
    result = runner.execute(output)
    outputs = scheduler.update_from_output(output, result)
    if result.draft_token_ids:
        scheduler.update_draft_token_ids(result.draft_token_ids)
    return output, list(outputs)


def run_all(
    scheduler: Scheduler,
    runner: Runner,
    requests: Sequence[Request],
    *,
    arrivals_per_step: int = 1000,
    after_step: Callable[[SchedulerOutput], None] = lambda output: None,
    max_steps: int = 5000,
) -> dict[str, list[int]]:
    """Returns the outputs of each request, run to its end; a few requests arrive at each step."""
    tokens: dict[str, list[int]] = {r.request_id: [] for r in requests}
    pending = list(requests)
    for _ in range(max_steps):
        for arrival in pending[:arrivals_per_step]:
            scheduler.add_request(arrival)
        del pending[:arrivals_per_step]
        output, results = run_step(scheduler, runner)
        for result in results:
            tokens[result.request_id].extend(result.new_token_ids)
        after_step(output)
        if not pending and not scheduler.requests:
            return tokens
    raise AssertionError(f"{len(scheduler.requests)} requests unfinished after {max_steps} steps")


def save_model(model: torch.nn.Module, directory: Path, **how: str) -> Path:
    transformers_logging.disable_progress_bar()
    model.save_pretrained(directory, **how)  # type: ignore[operator]
    transformers_logging.enable_progress_bar()
    return directory


SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
"""A very small model's, for families that call them so."""


def very_small_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.25,
        bos_token_id=0,
        eos_token_id=1,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return LlamaForCausalLM(config).eval()


@torch.inference_mode()
def reference_tokens(
    model: torch.nn.Module, prompt: Sequence[int], num_tokens: int
) -> tuple[list[int], list[float]]:
    """Returns a plain greedy loop's tokens, and the distance of its two best logits each time."""
    step_ids, cache = torch.tensor([list(prompt)]), None
    tokens, margins = [], []
    for _ in range(num_tokens):
        output = model(input_ids=step_ids, past_key_values=cache, use_cache=True)
        best = output.logits[0, -1].topk(2)
        tokens.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        step_ids, cache = best.indices[:1][None], output.past_key_values
    return tokens, margins


@torch.inference_mode()
def plain_choices(
    model: torch.nn.Module, prompt: Sequence[int], outputs: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Returns what a plain forward pass over prompt and outputs would choose for each output.

    Also the distance of the two best logits each time. An output equals its choice all the way
    exactly when the outputs are those of a greedy loop.
    """
    logits = model(input_ids=torch.tensor([[*prompt, *outputs]]), use_cache=False).logits[0]
    best = logits[len(prompt) - 1 : -1].topk(2)
    tokens: list[int] = best.indices[:, 0].tolist()
    return tokens, (best.values[:, 0] - best.values[:, 1]).tolist()
