"""A step's rows of logits, one by one: whose each is, and which output it chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.runner.sample_rows import SampleRows
from engine.runner.sampler.token_counts import TokenCounts
from engine.sampling import SamplingParams

GREEDY_BELOW = 1e-5
"""A temperature below this is greedy, as vLLM has it."""


@dataclass(slots=True, kw_only=True)
class Wishes:
    """What one request asks for that plain greedy would not do.

    Attributes:
        seed: of its draws, its own or one that it was given.
        ends: tokens that end its text, held back for `min_tokens`.
        bias: tokens, and what is added to their logits; None for none.
        counts: of its text so far; None where nothing is penalised.
    """

    sampling: SamplingParams
    seed: int
    ends: list[int]
    bias: tuple[torch.Tensor, torch.Tensor] | None
    counts: TokenCounts | None

    @property
    def is_drawn(self) -> bool:
        """Whether its tokens are drawn; else each is the best one."""
        return self.sampling.temperature >= GREEDY_BELOW


@dataclass(frozen=True, slots=True)
class Row:
    """A row of logits of a request with wishes, given that the drafts before it are right.

    Attributes:
        index: of the row in the logits.
        seq: of the sequence in the step.
        output: index of the output that it chooses.
        drafts: the drafts before it.
    """

    index: int
    seq: int
    wishes: Wishes
    output: int
    drafts: Sequence[int]


def rows_with_wishes(rows: SampleRows, wishes: Mapping[str, Wishes]) -> list[Row]:
    """Returns the rows of the requests that wish for something, in the order of the logits."""
    found: list[Row] = []
    if not wishes:
        return found
    start = 0
    each = zip(rows.request_ids, rows.num_outputs, rows.draft_token_ids, strict=True)
    for seq, (request_id, num_outputs, drafts) in enumerate(each):
        one = wishes.get(request_id)
        if one is not None:
            found += [
                Row(start + i, seq, one, num_outputs + i, drafts[:i])
                for i in range(len(drafts) + 1)
            ]
        start += len(drafts) + 1
    return found
