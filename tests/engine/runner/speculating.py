"""Runs requests with and without drafts, in ample and in scarce conditions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from engine.config import SpeculationConfig
from engine.runner.drafter import Drafter
from engine.runner.graphs import RerunCapturer
from engine.runner.model import LoadedModel
from engine.runner.model_drafter import ModelDrafter
from engine.runner.model_runner import ModelRunner
from engine.runner.ngram_drafter import NgramDrafter
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.speculative_settings import DraftSampleMethod
from telemetry.recorder import ListRecorder
from telemetry.records import RequestAdmitted
from telemetry.vocabulary import EventKind
from tests.engine.runner.builders import engine_config, request, run_all

NUM_DRAFTS = 3
MAX_MODEL_LEN = 96
BLOCK_SIZE = 8

Who = Literal["nobody", "ngram"] | tuple[LoadedModel, DraftSampleMethod]
"""Who drafts; a draft model, and how it chooses."""


def prompts(vocab_size: int, count: int = 15) -> list[list[int]]:
    """Returns prompts of 1 to 45 tokens, of which some begin alike and some repeat themselves."""
    rng = random.Random(1)
    common = [rng.randrange(3, vocab_size) for _ in range(24)]
    texts = []
    for n in range(count):
        own = [rng.randrange(3, vocab_size) for _ in range(1 + 2 * n)]
        texts.append([*common, *own[:20]] if n % 3 == 0 else own + own[: n % 3 * 5])
    return texts


def perturbed(model: LoadedModel, share: float = 0.15) -> LoadedModel:
    """Returns the model with noise on its weights: it is often right, and often wrong."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in model.module.parameters():
            if weights.numel() > 1:
                noise = torch.randn(weights.shape, generator=generator).to(weights.device)
                weights.add_(noise * weights.std() * share)
    return model


@dataclass
class Ran:
    """What came of it: texts, and the record."""

    tokens: dict[str, list[int]]
    recorder: ListRecorder

    @property
    def num_steps(self) -> int:
        return sum(1 for step in self.recorder.steps if step.num_scheduled_tokens)

    @property
    def num_placed(self) -> int:
        """Drafts that were verified, padding left out."""
        return sum(step.num_draft_tokens or 0 for step in self.recorder.steps)

    @property
    def num_accepted(self) -> int:
        return sum(step.num_accepted or 0 for step in self.recorder.steps)

    @property
    def num_preempted(self) -> int:
        return sum(event.kind == EventKind.preempted for event in self.recorder.events)

    @property
    def num_hits(self) -> int:
        admissions = (e for e in self.recorder.events if isinstance(e, RequestAdmitted))
        return sum(bool(admission.num_hit_tokens) for admission in admissions)


def run(
    model: LoadedModel,
    who: Who,
    wish: Callable[[int], SamplingParams],
    *,
    is_scarce: bool = False,
    texts: list[list[int]] | None = None,
    with_graphs: bool = False,
) -> Ran:
    """Runs all prompts; where it is scarce, with small chunks, preemptions and a cache reset.

    `wish` gives the sampling of a request, by its number. With graphs, decode batches are padded.
    """
    texts = texts or prompts(model.vocab_size)
    groups = model.kv_groups(BLOCK_SIZE)
    per_group = 34 if is_scarce else 400
    num_blocks = sum(per_group if g.kind == "full" else per_group // 2 for g in groups)
    config = engine_config(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        budget=24 if is_scarce else 512,
        max_num_seqs=8,
        max_model_len=MAX_MODEL_LEN,
        groups=groups,
        speculation=_speculation(who),
    )
    recorder = ListRecorder()
    scheduler = Scheduler(config, recorder=recorder)
    num_resets = 0

    def after_step(_: object) -> None:
        nonlocal num_resets
        scheduler.check_integrity()
        if is_scarce and num_resets < 2 and scheduler.num_steps % 25 == 0:
            num_resets += scheduler.reset_prefix_cache(reset_running=True)

    runner = ModelRunner(model, config, drafter=_drafter(who, model, num_blocks))
    if with_graphs:
        runner.capture_graphs(RerunCapturer())
    requests = [request(n, text, wish(n)) for n, text in enumerate(texts)]
    tokens = run_all(scheduler, runner, requests, arrivals_per_step=2, after_step=after_step)
    return Ran(tokens, recorder)


def _speculation(who: Who) -> SpeculationConfig:
    if who == "nobody":
        return SpeculationConfig()
    has_kv = who != "ngram"
    return SpeculationConfig(
        num_speculative_tokens=NUM_DRAFTS,
        num_lookahead_tokens=NUM_DRAFTS if has_kv else 0,
        draft_slots_per_request=1 if has_kv else 0,
    )


def _drafter(who: Who, target: LoadedModel, num_blocks: int) -> Drafter | None:
    if who == "nobody":
        return None
    if who == "ngram":
        return NgramDrafter(
            num_speculative_tokens=NUM_DRAFTS,
            prompt_lookup_min=1,
            prompt_lookup_max=3,
            max_model_len=MAX_MODEL_LEN,
        )
    model, how = who
    return ModelDrafter(
        model,
        target.kv_groups(BLOCK_SIZE),
        num_speculative_tokens=NUM_DRAFTS,
        how=how,
        num_blocks=num_blocks,
        max_model_len=MAX_MODEL_LEN,
    )
