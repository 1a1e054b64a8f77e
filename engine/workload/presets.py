"""Named loads, drawn from a few numbers and a seed.

Sizes suit the tiny Llama that `serve` makes without a MODEL. All are open loop: requests arrive
when they would, whether or not the engine keeps up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.workload.plan import PlannedRequest, PromptPart, WorkloadError

CONTENT_KEY = 3
"""Keeps these prompts apart from those of other readers under the same seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A load in a few numbers.

    Arrivals are a Poisson process of `rate` requests a second. Lengths are uniform between the two
    bounds, both included; a prompt starts with `shared_prefix` tokens that all requests share.
    `priorities` are drawn evenly; empty sends none.
    """

    name: str
    summary: str
    num_requests: int
    rate: float
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    shared_prefix: int = 0
    priorities: tuple[int, ...] = ()

    def plan(self, seed: int, num_requests: int | None = None) -> list[PlannedRequest]:
        """Returns the requests, the same for the same seed; `num_requests` overrides how many."""
        generator = np.random.default_rng(seed)
        offset_seconds = 0.0
        plan = []
        for index in range(num_requests or self.num_requests):
            plan.append(self._draw(index, offset_seconds, generator))
            offset_seconds += float(generator.exponential(1 / self.rate))
        return plan

    def _draw(
        self, index: int, offset_seconds: float, generator: np.random.Generator
    ) -> PlannedRequest:
        low, high = self.prompt_tokens
        num_prompt_tokens = int(generator.integers(low, high + 1))
        shared = min(self.shared_prefix, num_prompt_tokens)
        parts = (
            PromptPart((CONTENT_KEY, 0), shared),
            PromptPart((CONTENT_KEY, index + 1), num_prompt_tokens - shared),
        )
        return PlannedRequest(
            offset_seconds=offset_seconds,
            prompt=tuple(part for part in parts if part.length),
            max_tokens=int(generator.integers(self.output_tokens[0], self.output_tokens[1] + 1)),
            priority=int(generator.choice(self.priorities)) if self.priorities else None,
        )


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="storm",
            summary="a burst of long outputs that overloads a small KV pool (160 blocks)",
            num_requests=64,
            rate=32.0,
            prompt_tokens=(48, 96),
            output_tokens=(120, 200),
        ),
        Preset(
            name="demo",
            summary="84 requests of one size at once, for 28 clients and a pool that holds nine",
            num_requests=84,
            rate=1000.0,
            prompt_tokens=(64, 64),
            output_tokens=(160, 160),
        ),
        Preset(
            name="steady",
            summary="short requests at a pace that a tiny model keeps up with",
            num_requests=60,
            rate=6.0,
            prompt_tokens=(32, 64),
            output_tokens=(12, 24),
        ),
        Preset(
            name="slots",
            summary="many short requests at once: the running list fills long before the KV pool",
            num_requests=96,
            rate=64.0,
            prompt_tokens=(8, 24),
            output_tokens=(16, 32),
        ),
        Preset(
            name="shared-prefix",
            summary="prompts that begin alike, so the prefix cache answers most of each",
            num_requests=60,
            rate=6.0,
            prompt_tokens=(288, 352),
            output_tokens=(12, 24),
            shared_prefix=256,
        ),
        Preset(
            name="priorities",
            summary="the storm with mixed priorities, for --scheduling-policy priority",
            num_requests=64,
            rate=32.0,
            prompt_tokens=(48, 96),
            output_tokens=(120, 200),
            priorities=(0, 0, 5),
        ),
    )
}


def find_preset(name: str) -> Preset:
    """Returns the preset of that name.

    Raises:
        WorkloadError: there is none; the message lists those that there are.
    """
    if name not in PRESETS:
        raise WorkloadError(f"preset {name!r} is not known: choose {', '.join(PRESETS)}")
    return PRESETS[name]
