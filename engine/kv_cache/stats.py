"""How often the prefix cache was asked, and how much it had."""

from __future__ import annotations

from dataclasses import dataclass

from engine.request import Request


@dataclass(slots=True)
class PrefixCacheStats:
    """Look-ups at admissions since the last update; preempted requests are counted apart."""

    num_requests: int = 0
    num_queried_tokens: int = 0
    num_hit_tokens: int = 0
    num_preempted_requests: int = 0
    num_preempted_queried_tokens: int = 0
    num_preempted_hit_tokens: int = 0

    def count(self, request: Request, num_hit_tokens: int) -> None:
        """Counts one look-up."""
        if request.num_preemptions:
            self.num_preempted_requests += 1
            self.num_preempted_queried_tokens += request.num_tokens
            self.num_preempted_hit_tokens += num_hit_tokens
        else:
            self.num_requests += 1
            self.num_queried_tokens += request.num_tokens
            self.num_hit_tokens += num_hit_tokens
