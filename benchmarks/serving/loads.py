"""What the engines are asked for: prompts of random tokens, so many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FIRST_TOKEN = 3
"""Below it are ids that some models keep for their special tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop: `concurrency` requests at a time until all are answered.

    Attributes:
        num_requests: of one round.
        max_tokens: what each makes exactly, greedily.
        vocab_size: prompts are drawn from the ids below it.
    """

    concurrency: int
    num_requests: int
    num_prompt_tokens: int
    max_tokens: int
    vocab_size: int

    def prompts(self, seed: int) -> list[list[int]]:
        """Returns a round's prompts; no two rounds share one."""
        generator = np.random.default_rng((seed, self.concurrency))
        size = (self.num_requests, self.num_prompt_tokens)
        drawn: list[list[int]] = generator.integers(FIRST_TOKEN, self.vocab_size, size).tolist()
        return drawn

    def body(self, model: str, prompt: Sequence[int]) -> dict[str, Any]:
        """Returns what `/v1/completions` is asked for a prompt, without a stream."""
        return {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }


def loads(
    concurrencies: Sequence[int],
    *,
    num_prompt_tokens: int,
    max_tokens: int,
    vocab_size: int,
    waves: int = 2,
) -> list[Load]:
    """Returns a load for each concurrency, so long that each of its clients asks `waves` times."""
    return [
        Load(
            concurrency=concurrency,
            num_requests=concurrency * waves,
            num_prompt_tokens=num_prompt_tokens,
            max_tokens=max_tokens,
            vocab_size=vocab_size,
        )
        for concurrency in concurrencies
    ]
