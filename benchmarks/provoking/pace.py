"""How long a step takes: a model on a device, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from engine.scheduler import Scheduler, SchedulerOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The time of a step grows with what it computes; defaults are a middling GPU.

    `draft_ms` is what proposing drafts adds, `draft_us` what it adds for each draft that is
    verified. Each step is longer or shorter by up to `jitter` of it.
    """

    step_ms: float = 25.0
    prefill_us: float = 40.0
    """For each token beyond a request's newest."""
    decode_us: float = 100.0
    """For each request in the step."""
    context_us: float = 4.0
    """For each thousand tokens that those requests have computed."""
    draft_ms: float = 0.0
    draft_us: float = 0.0
    jitter: float = 0.05

    def step_ns(
        self, output: SchedulerOutput, scheduler: Scheduler, random: Random, *, drafts: bool
    ) -> int:
        """Returns the time of a step that computes something, and proposes `drafts` or not."""
        num_requests = len(output.num_scheduled_tokens)
        num_drafts = sum(map(len, output.scheduled_spec_decode_tokens.values()))
        num_prefill = output.total_num_scheduled_tokens - num_requests - num_drafts
        pool, block_size = scheduler.kv.pool, scheduler.config.cache.block_size
        held = (pool.num_usable - pool.num_free) * block_size
        us = self.prefill_us * num_prefill + self.decode_us * num_requests
        us += self.context_us * held / 1000 + self.draft_us * num_drafts
        ms = self.step_ms + (self.draft_ms if drafts else 0.0) + us / 1000
        return int(ms * 1e6 * random.uniform(1 - self.jitter, 1 + self.jitter))

    def phases(self, took_ns: int, *, drafts: bool) -> dict[str, int | None]:
        """Returns how a step's time is divided, as the runner would report it."""
        inputs, sample = took_ns // 50, took_ns // 50
        draft = min(int(self.draft_ms * 1e6), took_ns) if drafts else None
        forward = max(0, took_ns - inputs - sample - (draft or 0))
        return {
            "inputs_ns": inputs,
            "forward_ns": forward,
            "sample_ns": sample,
            "draft_ns": draft,
        }
