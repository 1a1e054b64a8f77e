"""A step as large as any that an engine's settings allow, run on a cache of two blocks."""

from __future__ import annotations

from dataclasses import replace

from engine.config import EngineConfig
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler.output import NewRequestData, SchedulerOutput

ONLY_BLOCK = 1
"""The block that everybody's keys and values go to: what they are does not matter here."""


def with_two_blocks(config: EngineConfig) -> EngineConfig:
    """Returns the settings with the smallest KV cache there is."""
    return replace(config, cache=replace(config.cache, num_gpu_blocks=ONLY_BLOCK + 1))


def largest_step(config: EngineConfig) -> SchedulerOutput:
    """Returns a step with all tokens of the budget, and logits for as many requests as may run.

    All of them draw from what their parameters leave of the vocabulary, which takes most memory.
    """
    scheduler = config.scheduler
    budget = min(scheduler.scheduled_tokens, scheduler.max_num_seqs * scheduler.max_model_len)
    num_seqs = min(scheduler.max_num_seqs, budget)
    lengths = [budget // num_seqs + (i < budget % num_seqs) for i in range(num_seqs)]
    sampling = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9, top_k=50, seed=0)
    requests = tuple(
        NewRequestData(
            request_id=f"profile-{i}",
            prompt_token_ids=[0] * length,
            sampling=sampling,
            block_ids=_blocks(config, length),
            num_computed_tokens=0,
        )
        for i, length in enumerate(lengths)
    )
    return SchedulerOutput(
        step=0,
        scheduled_new_reqs=requests,
        other_scheduled_tokens={
            request.request_id: length for request, length in zip(requests, lengths, strict=True)
        },
        total_num_scheduled_tokens=budget,
    )


def _blocks(config: EngineConfig, num_tokens: int) -> tuple[list[int], ...]:
    """Returns a request's blocks in each group, with room for what a drafter writes ahead."""
    most = config.scheduler.max_model_len
    ahead = config.speculation.num_speculative_tokens + 1
    num_blocks = -(-min(num_tokens + ahead, most) // config.cache.block_size)
    return tuple([ONLY_BLOCK] * num_blocks for _ in config.cache.kv_groups)


def run_largest_step(runner: ModelRunner, config: EngineConfig) -> None:
    """Runs such a step, and has the runner forget it."""
    step = largest_step(config)
    runner.execute(step)
    runner.execute(
        SchedulerOutput(
            step=1,
            total_num_scheduled_tokens=0,
            finished_req_ids=frozenset(step.num_scheduled_tokens),
        )
    )
