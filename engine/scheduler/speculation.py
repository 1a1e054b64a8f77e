"""Draft tokens: how many fit into a step, and how many were right.

A draft is a guess at a request's next tokens. Drafts are scheduled behind the known tokens and
verified in the same forward pass; what is rejected counts as not computed. A placeholder (-1) pads
a request that has one token to do to the size of the others, and is always rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.request import Request

PLACEHOLDER = -1


@dataclass(slots=True)
class SpeculationStats:
    """Verified drafts since the last update."""

    num_requests: int = 0
    num_drafts: int = 0
    num_accepted: int = 0

    def count(self, num_drafts: int, num_accepted: int) -> None:
        """Counts the drafts of one request in one step."""
        self.num_requests += 1
        self.num_drafts += num_drafts
        self.num_accepted += num_accepted


def drafts_within(request: Request, num_tokens: int) -> list[int]:
    """Returns those of a request's drafts that a grant of `num_tokens` reaches."""
    known = request.num_tokens + request.num_output_placeholders
    reached = request.num_computed_tokens + num_tokens - known
    return request.draft_token_ids[: max(0, reached)]
