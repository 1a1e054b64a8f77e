"""What the rows of a step's logits are for, and what is chosen from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from engine.scheduler.output import TokenLogprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRows:
    """The sequences that a step samples, in the order of the logits' rows.

    A sequence has one row for its next token and one more behind each of its drafts: row i of it is
    where output `num_outputs + i` is chosen, given that drafts 0 to i - 1 are right.

    Attributes:
        request_ids: `[num_seqs]`.
        num_outputs: `[num_seqs]`, outputs that are known so far.
        num_prompt_tokens: `[num_seqs]`.
        known_token_ids: `[num_seqs]`, prompt and outputs of each; views, not to be kept.
        draft_token_ids: `[num_seqs]`, the drafts of each; -1 is a placeholder, never right.
        bitmask: `[num_rows, ceil(vocab_size / 32)]` int32, a bit for each token that a grammar
            lets through; all ones for rows without a grammar. None where there is none at all.
        draft_logits: of requests whose drafts were drawn: what from, `[num_drafts, vocab_size]`.
    """

    request_ids: Sequence[str]
    num_outputs: Sequence[int]
    num_prompt_tokens: Sequence[int]
    known_token_ids: Sequence[npt.NDArray[np.int32]]
    draft_token_ids: Sequence[Sequence[int]]
    bitmask: npt.NDArray[np.int32] | None = None
    draft_logits: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows of logits that they take."""
        return len(self.request_ids) + sum(len(drafts) for drafts in self.draft_token_ids)


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """The new tokens of each sequence (one, and one more for each draft that was right)."""

    token_ids: list[list[int]]
    logprobs: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    """Of requests that want them, one for each new token."""
