"""From logits to tokens: greedy, temperature, top-k, top-p, seeds, and least outputs.

A draw takes one uniform number and looks it up in the cumulated probabilities. A seeded request has
a generator of its own, so its numbers depend neither on its neighbours in the batch nor on a
preemption; the others share the runner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.runner.sample_rows import SampledTokens, SampleRows
from engine.sampling import SamplingParams

MIN_TEMPERATURE = 1e-5
"""Smaller ones draw as this one does, which is greedy, without dividing by nothing."""


@dataclass(slots=True)
class _Choice:
    """How one request, other than plain greedy, chooses."""

    sampling: SamplingParams
    generator: torch.Generator | None


class Sampler:
    """Chooses the next token of each sequence.

    Args:
        eos_token_ids: tokens that `min_tokens` holds back, unless the request ignores them.
        seed: of the generator that requests without a seed share.
    """

    def __init__(self, *, eos_token_ids: Sequence[int] = (), seed: int = 0) -> None:
        self._eos_token_ids = tuple(eos_token_ids)
        self._shared = torch.Generator().manual_seed(seed)
        self._choices: dict[str, _Choice] = {}

    def add(self, request_id: str, sampling: SamplingParams) -> None:
        """Takes in a request; it stays through preemptions, until `remove`."""
        if sampling.temperature == 0 and sampling.min_tokens == 0:
            return
        generator = None
        if sampling.seed is not None:
            generator = torch.Generator().manual_seed(sampling.seed % (1 << 63))
        self._choices[request_id] = _Choice(sampling, generator)

    def remove(self, request_id: str) -> None:
        """Forgets a request; one that is not known is no error."""
        self._choices.pop(request_id, None)

    def sample(self, logits: torch.Tensor, rows: SampleRows) -> SampledTokens:
        """Returns the new tokens of each sequence.

        Args:
            logits: `[num_rows, vocab_size]`; may be written to.
            rows: what each of them is for.
        """
        if not rows.request_ids:
            return SampledTokens([])
        return SampledTokens([[token] for token in self._choose(logits, rows)])

    def _choose(self, logits: torch.Tensor, rows: SampleRows) -> list[int]:
        """Returns a token a row."""
        choices = [self._choices.get(request_id) for request_id in rows.request_ids]
        if not any(choices):
            return _greedy(logits)
        self._hold_back_ends(logits, choices, rows.num_outputs)
        tokens = _greedy(logits)
        drawn = [i for i, c in enumerate(choices) if c is not None and c.sampling.temperature > 0]
        if drawn:
            picked = [c for c in choices if c is not None and c.sampling.temperature > 0]
            for i, token in zip(drawn, self._draw(logits[drawn], picked), strict=True):
                tokens[i] = token
        return tokens

    def _hold_back_ends(
        self, logits: torch.Tensor, choices: list[_Choice | None], num_outputs: Sequence[int]
    ) -> None:
        for row, (choice, count) in enumerate(zip(choices, num_outputs, strict=True)):
            if choice is not None and count < choice.sampling.min_tokens:
                ends = [*choice.sampling.stop_token_ids]
                if not choice.sampling.ignore_eos:
                    ends.extend(self._eos_token_ids)
                known = [token for token in ends if 0 <= token < logits.shape[1]]
                logits[row, known] = float("-inf")

    def _draw(self, logits: torch.Tensor, choices: list[_Choice]) -> list[int]:
        """Returns a token drawn for each row of `[num_rows, vocab_size]`."""
        device = logits.device
        temperature = torch.tensor([c.sampling.temperature for c in choices], device=device)
        top_k = torch.tensor([c.sampling.top_k or logits.shape[1] for c in choices], device=device)
        top_p = torch.tensor([c.sampling.top_p for c in choices], device=device)
        best = logits.float() - logits.amax(dim=-1, keepdim=True)
        scaled = best / temperature.clamp(min=MIN_TEMPERATURE)[:, None]
        probs, order = scaled.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
        probs = _keep_top(probs, top_k, top_p)
        cumulated = probs.cumsum(dim=-1)
        uniform = torch.cat(
            [torch.rand(1, generator=c.generator or self._shared) for c in choices]
        ).to(device)
        rank = torch.searchsorted(cumulated, uniform[:, None] * cumulated[:, -1:], right=True)
        last_kept = ((probs > 0).sum(dim=-1, keepdim=True) - 1).clamp(min=0)
        tokens: list[int] = order.gather(1, torch.minimum(rank, last_kept))[:, 0].tolist()
        return tokens


def _greedy(logits: torch.Tensor) -> list[int]:
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    return tokens


def _keep_top(probs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Returns sorted probabilities with those outside top-k, then top-p, set to 0.

    Top-p counts among what top-k has kept, and keeps the token that reaches it.
    """
    ranks = torch.arange(probs.shape[1], device=probs.device)
    probs = probs.masked_fill(ranks >= top_k[:, None], 0.0)
    before = probs.cumsum(dim=-1) - probs
    limit = top_p[:, None] * probs.sum(dim=-1, keepdim=True)
    return probs.masked_fill((before >= limit) & (top_p[:, None] < 1), 0.0)
