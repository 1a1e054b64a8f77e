"""How many drafts were verified and how many of them were right, for a metrics page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(slots=True, kw_only=True)
class DraftStats:
    """Counters since the engine's start; padding counts as drafts that were wrong, as in vLLM.

    Attributes:
        num_drafts: verifications, one for each request with drafts in a step.
        num_accepted_tokens_per_pos: `[num_speculative_tokens]`, by place behind the newest token.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int]

    @classmethod
    def of(cls, num_speculative_tokens: int) -> DraftStats:
        """Returns counters at 0."""
        return cls(num_accepted_tokens_per_pos=[0] * num_speculative_tokens)

    def verified(
        self, drafts: Mapping[str, Sequence[int]], sampled: Mapping[str, Sequence[int]]
    ) -> None:
        """Takes in a step: the drafts that it placed, and each request's new tokens."""
        for request_id, token_ids in drafts.items():
            num_accepted = len(sampled[request_id]) - 1
            self.num_drafts += 1
            self.num_draft_tokens += len(token_ids)
            self.num_accepted_tokens += num_accepted
            for place in range(num_accepted):
                self.num_accepted_tokens_per_pos[place] += 1

    def copy(self) -> DraftStats:
        """Returns counters that later steps leave alone."""
        return replace(self, num_accepted_tokens_per_pos=list(self.num_accepted_tokens_per_pos))
