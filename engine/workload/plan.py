"""What will be sent, and when: a plan is a list of requests in arrival order.

Prompts are recipes rather than tokens, so a plan of thousands of long prompts stays small, and two
prompts that share a block share its tokens exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np


class WorkloadError(ValueError):
    """A trace, preset or option that cannot be replayed; the message is for people."""


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A run of random tokens: the first `length` tokens that `content` stands for.

    Parts with the same `content` hold the same tokens, whichever request they are in.
    """

    content: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request of a plan. `offset_seconds` counts from the start of the run."""

    offset_seconds: float
    prompt: tuple[PromptPart, ...]
    max_tokens: int
    priority: int | None = None

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum(part.length for part in self.prompt)

    def token_ids(self, *, vocab_size: int, seed: int) -> list[int]:
        """Returns the prompt: random token ids below `vocab_size`, the same for the same seed."""
        token_ids: list[int] = []
        for part in self.prompt:
            generator = np.random.default_rng((seed, *part.content))
            token_ids += generator.integers(0, vocab_size, size=part.length).tolist()
        return token_ids


def cut_prompt(prompt: Iterable[PromptPart], limit: int) -> tuple[PromptPart, ...]:
    """Returns the first `limit` tokens of a prompt."""
    kept: list[PromptPart] = []
    for part in prompt:
        if limit <= 0:
            break
        kept.append(replace(part, length=min(part.length, limit)))
        limit -= part.length
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """How a plan is cut down: None leaves it as it is.

    `speed` 10 sends ten times as fast. Scaling (`--scale`) is done by the trace's reader, which
    knows the trace's blocks.

    Raises:
        WorkloadError: a limit is below what can be replayed.
    """

    num_requests: int | None = None
    max_prompt: int | None = None
    max_tokens: int | None = None
    speed: float = 1.0

    def __post_init__(self) -> None:
        for flag, value in (
            ("--limit", self.num_requests),
            ("--max-prompt", self.max_prompt),
            ("--max-tokens", self.max_tokens),
        ):
            if value is not None and value < 1:
                raise WorkloadError(f"{flag} is {value}: it must be 1 or more")
        if not self.speed > 0:
            raise WorkloadError(f"--speed is {self.speed}: it must be above 0 (1 is the trace's)")

    def apply(self, plan: list[PlannedRequest]) -> list[PlannedRequest]:
        """Returns the plan in arrival order, cut down, its first request at 0 seconds.

        Raises:
            WorkloadError: nothing is left to send.
        """
        ordered = sorted(plan, key=lambda request: request.offset_seconds)[: self.num_requests]
        if not ordered:
            raise WorkloadError("the plan holds no request: there is nothing to send")
        start = ordered[0].offset_seconds
        return [self._cut(request, start) for request in ordered]

    def _cut(self, request: PlannedRequest, start: float) -> PlannedRequest:
        prompt = request.prompt
        if self.max_prompt is not None:
            prompt = cut_prompt(prompt, self.max_prompt)
        max_tokens = request.max_tokens
        if self.max_tokens is not None:
            max_tokens = min(max_tokens, self.max_tokens)
        offset_seconds = (request.offset_seconds - start) / self.speed
        return replace(request, offset_seconds=offset_seconds, prompt=prompt, max_tokens=max_tokens)
