"""Sampled tokens equal those of a plain sampler over plain logits, whatever happened in between.

Each output is chosen anew from `transformers`' own forward pass over all that came before it. That
they agree all the way means that the text is the one of a plain loop.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from engine.config import EngineConfig
from engine.core import EngineCore, NewRequest
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler.output import TokenLogprobs
from telemetry.recorder import ListRecorder
from telemetry.vocabulary import EventKind
from tests.engine.runner.builders import engine_config
from tests.engine.runner.sampler import plain
from tests.engine.runner.test_equivalence import num_chunked, num_hit, num_preempted

NUM_REQUESTS = 48
VOCAB_SIZE = 128
TIE = 2e-3
"""Two best scores nearer than this may change places with the last bits of the logits."""

ROOMY = engine_config(num_blocks=2048, max_num_seqs=NUM_REQUESTS)
TIGHT = engine_config(num_blocks=44, budget=48, max_num_seqs=24)


@dataclass
class Outputs:
    """What an engine said to each request."""

    token_ids: dict[str, list[int]]
    logprobs: dict[str, list[TokenLogprobs]]
    recorder: ListRecorder


@dataclass(frozen=True)
class Workload:
    """Requests that sample in all kinds of ways; some begin alike."""

    prompts: list[list[int]]
    samplings: list[SamplingParams]

    @classmethod
    def drawn(cls) -> Workload:
        rng = random.Random(8)
        prefixes = [[rng.randrange(2, VOCAB_SIZE) for _ in range(24)] for _ in range(3)]
        prompts = [
            rng.choice([*prefixes, []])
            + [rng.randrange(2, VOCAB_SIZE) for _ in range(rng.randrange(4, 30))]
            for _ in range(NUM_REQUESTS)
        ]
        return cls(prompts, [_sampling(rng, n) for n in range(NUM_REQUESTS)])

    def run(self, model: LoadedModel, config: EngineConfig, order: Sequence[int]) -> Outputs:
        """Runs requests, in this order, two more at each step."""
        recorder = ListRecorder()
        core = EngineCore(
            config,
            ModelRunner(model, config),
            recorder=recorder,
            clock=iter(range(10**9)).__next__,
            model_name="small",
        )
        outputs = Outputs({}, {}, recorder)
        pending = list(order)
        while pending or core.has_work():
            for n in pending[:2]:
                outputs.token_ids[f"r{n}"], outputs.logprobs[f"r{n}"] = [], []
                core.add_request(
                    NewRequest(
                        request_id=f"r{n}",
                        prompt_token_ids=self.prompts[n],
                        sampling=self.samplings[n],
                    )
                )
            del pending[:2]
            for result in core.step()[1]:
                outputs.token_ids[result.request_id] += result.new_token_ids
                outputs.logprobs[result.request_id] += result.logprobs
            core.scheduler.check_integrity()
        return outputs


def _sampling(rng: random.Random, n: int) -> SamplingParams:
    max_tokens = rng.randrange(20, 50)
    return SamplingParams(
        max_tokens=max_tokens,
        ignore_eos=True,
        temperature=rng.choice((0.0, 0.6, 1.0, 1.4)),
        seed=1000 + n,
        top_k=rng.choice((0, 0, 5, 40)),
        top_p=rng.choice((1.0, 1.0, 0.7)),
        min_p=rng.choice((0.0, 0.0, 0.05)),
        presence_penalty=rng.choice((0.0, 0.0, 0.8, -0.3)),
        frequency_penalty=rng.choice((0.0, 0.0, 0.5)),
        repetition_penalty=rng.choice((1.0, 1.0, 1.3)),
        logit_bias=rng.choice(((), ((5, 4.0), (7, -100.0)))),
        logprobs=rng.choice((None, 0, 3)),
        min_tokens=rng.choice((0, 12)),
        stop_token_ids=tuple(rng.sample(range(VOCAB_SIZE), 3)),
    )


class Judge:
    """What a plain forward pass says about one request's outputs."""

    def __init__(
        self,
        model: LlamaForCausalLM,
        prompt: Sequence[int],
        sampling: SamplingParams,
        outputs: Sequence[int],
    ) -> None:
        self._prompt, self._sampling, self._outputs = prompt, sampling, outputs
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([[*prompt, *outputs]]), use_cache=False).logits
        self._logits = logits[0, len(prompt) - 1 : -1].double()

    def first_difference(self) -> tuple[int, float] | None:
        """Returns the first output that is not the reference's, and how near the two best were."""
        for n, (logits, output) in enumerate(zip(self._logits, self._outputs, strict=True)):
            before = self._outputs[:n]
            token, margin = plain.choose(logits.numpy(), self._sampling, self._prompt, before)
            if token != output:
                return n, margin
        return None

    @cached_property
    def logprobs(self) -> plain.Floats:
        return np.asarray(self._logits.log_softmax(dim=-1).numpy(), np.float64)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.drawn()


@pytest.fixture(scope="module")
def under_pressure(workload: Workload, small_model: LoadedModel) -> Outputs:
    return workload.run(small_model, TIGHT, range(NUM_REQUESTS))


def test_outputs_under_pressure_are_those_of_a_plain_loop(
    workload: Workload, under_pressure: Outputs, small_reference: LlamaForCausalLM
) -> None:
    num_ties = 0
    for n, (prompt, sampling) in enumerate(zip(workload.prompts, workload.samplings, strict=True)):
        outputs = under_pressure.token_ids[f"r{n}"]
        assert outputs
        difference = Judge(small_reference, prompt, sampling, outputs).first_difference()
        if difference is not None:
            assert difference[1] < TIE, f"r{n} ({sampling}) differs at output {difference}"
            num_ties += 1
    assert num_ties <= 2
    events = under_pressure.recorder.events
    assert num_preempted(events) >= 15
    assert num_hit(events) >= 10
    assert num_chunked(events) >= 10


def test_logprobs_under_pressure_are_those_of_the_plain_logits(
    workload: Workload, under_pressure: Outputs, small_reference: LlamaForCausalLM
) -> None:
    num_compared = 0
    for n, (prompt, sampling) in enumerate(zip(workload.prompts, workload.samplings, strict=True)):
        outputs, found = under_pressure.token_ids[f"r{n}"], under_pressure.logprobs[f"r{n}"]
        if sampling.logprobs is None:
            assert found == []
            continue
        assert [one.token_id for one in found] == outputs
        expected = Judge(small_reference, prompt, sampling, outputs).logprobs
        for one, row in zip(found, expected, strict=True):
            assert one.logprob == pytest.approx(row[one.token_id], abs=1e-3)
            best = np.sort(row)[::-1][: sampling.logprobs]
            assert [logprob for _, logprob in one.top] == pytest.approx(best.tolist(), abs=1e-3)
            assert all(row[token] == pytest.approx(p, abs=1e-3) for token, p in one.top)
            num_compared += 1
    assert num_compared > 300


@pytest.mark.parametrize("how", ["roomy", "in another order", "alone"])
def test_who_else_is_there_changes_no_text(
    how: str, workload: Workload, under_pressure: Outputs, small_model: LoadedModel
) -> None:
    if how == "alone":
        others = [workload.run(small_model, ROOMY, [n]) for n in range(0, NUM_REQUESTS, 3)]
        token_ids = {name: ids for each in others for name, ids in each.token_ids.items()}
    else:
        order = list(range(NUM_REQUESTS))
        if how == "in another order":
            random.Random(2).shuffle(order)
        config = ROOMY if how == "roomy" else TIGHT
        token_ids = workload.run(small_model, config, order).token_ids
    different = [name for name, ids in token_ids.items() if ids != under_pressure.token_ids[name]]
    assert len(different) <= 1, different  # a near tie of the two best


def test_other_seeds_say_other_things(workload: Workload, small_model: LoadedModel) -> None:
    drawn = [n for n, s in enumerate(workload.samplings) if s.temperature == 1.0][:4]
    other = replace(
        workload, samplings=[replace(s, seed=(s.seed or 0) + 1) for s in workload.samplings]
    )
    texts = [each.run(small_model, ROOMY, drawn).token_ids for each in (workload, other)]
    assert all(texts[0][f"r{n}"] != texts[1][f"r{n}"] for n in drawn)


def test_preempted_requests_are_among_those_that_draw(
    workload: Workload, under_pressure: Outputs
) -> None:
    preempted = {
        event.request
        for event in under_pressure.recorder.events
        if event.kind == EventKind.preempted and event.request is not None
    }
    assert sum(workload.samplings[n].temperature > 0 for n in preempted) >= 10
