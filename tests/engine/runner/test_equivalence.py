"""The engine's greedy tokens equal those of a plain forward loop, whatever happened in between."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from transformers import LlamaForCausalLM

from engine.request import Request
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from telemetry.recorder import ListRecorder
from telemetry.records import Event, RequestAdmitted, RequestArrived
from telemetry.vocabulary import EventKind
from tests.engine.runner.builders import engine_config, reference_tokens, request, run_all

NUM_REQUESTS = 100
TIE = 1e-4
"""Two best logits nearer than this may change places with the order of additions."""


@dataclass(frozen=True)
class Workload:
    prompts: list[list[int]]
    num_outputs: list[int]
    expected: list[list[int]]
    margins: list[list[float]]

    def requests(self) -> list[Request]:
        rng = random.Random(5)
        return [
            request(
                n,
                prompt,
                SamplingParams(max_tokens=count, ignore_eos=True),
                priority=rng.randrange(4),
            )
            for n, (prompt, count) in enumerate(zip(self.prompts, self.num_outputs, strict=True))
        ]


@pytest.fixture(scope="module")
def workload(small_reference: LlamaForCausalLM) -> Workload:
    rng = random.Random(1)
    prefixes = [[rng.randrange(2, 128) for _ in range(24)] for _ in range(3)]
    prompts = [
        rng.choice([*prefixes, []]) + [rng.randrange(2, 128) for _ in range(rng.randrange(4, 40))]
        for _ in range(NUM_REQUESTS)
    ]
    num_outputs = [rng.randrange(40, 100) for _ in prompts]
    references = [
        reference_tokens(small_reference, prompt, count)
        for prompt, count in zip(prompts, num_outputs, strict=True)
    ]
    return Workload(prompts, num_outputs, *map(list, zip(*references, strict=True)))


def num_preempted(events: list[Event]) -> int:
    return len({event.request for event in events if event.kind == EventKind.preempted})


def num_hit(events: list[Event]) -> int:
    return len({e.request for e in events if _is_admission(e) and e.num_hit_tokens})  # type: ignore[attr-defined]


def num_chunked(events: list[Event]) -> int:
    """Returns how many requests were admitted with less than the whole rest of their prompt."""
    prompts = {e.request: e.num_prompt_tokens for e in events if isinstance(e, RequestArrived)}
    return len(
        {
            e.request
            for e in events
            if isinstance(e, RequestAdmitted)
            and _is_admission(e)
            and (e.num_hit_tokens or 0) + (e.num_scheduled_tokens or 0) < prompts[e.request]
        }
    )


def _is_admission(event: Event) -> bool:
    return event.kind == EventKind.admitted


def requests_that_differ_at_a_tie(tokens: dict[str, list[int]], workload: Workload) -> int:
    """Returns how many requests left the reference at a tie; any other difference is an error."""
    num_ties = 0
    for n, expected in enumerate(workload.expected):
        got = tokens[f"r{n}"]
        assert len(got) == len(expected)
        if got != expected:
            first = next(
                i for i, pair in enumerate(zip(got, expected, strict=True)) if pair[0] != pair[1]
            )
            margin = workload.margins[n][first]
            assert margin <= TIE, f"r{n} differs at output {first}, where the margin is {margin}"
            num_ties += 1
    return num_ties


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_hundred_requests_under_pressure_get_the_reference_tokens(
    policy: str, workload: Workload, small_model: LoadedModel
) -> None:
    config = engine_config(num_blocks=72, budget=48, max_num_seqs=24, policy=policy)
    recorder = ListRecorder()
    scheduler = Scheduler(config, recorder=recorder)
    runner = ModelRunner(small_model, config)
    tokens = run_all(
        scheduler,
        runner,
        workload.requests(),
        arrivals_per_step=2,
        after_step=lambda output: scheduler.check_integrity(),
    )
    assert requests_that_differ_at_a_tie(tokens, workload) <= 3
    assert num_preempted(recorder.events) >= 60
    assert num_hit(recorder.events) >= 20
    assert num_chunked(recorder.events) >= 20


def test_a_reset_of_the_cache_in_mid_run_changes_no_token(
    workload: Workload, small_model: LoadedModel
) -> None:
    config = engine_config(num_blocks=256, budget=64)
    scheduler = Scheduler(config)
    runner = ModelRunner(small_model, config)
    num_resets = 0

    def reset_sometimes(_: object) -> None:
        nonlocal num_resets
        if len(scheduler.running) > 8 and num_resets < 3:
            assert scheduler.reset_prefix_cache(reset_running=True)
            num_resets += 1

    tokens = run_all(
        scheduler, runner, workload.requests(), arrivals_per_step=3, after_step=reset_sometimes
    )
    assert num_resets == 3
    assert requests_that_differ_at_a_tie(tokens, workload) <= 3
