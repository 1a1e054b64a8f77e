"""Drafts that are as often right as they were when a run was recorded."""

from __future__ import annotations

from collections.abc import Callable

from diagnose.replay.workload import DraftRecord, WorkRequest


class SimulatedDrafts:
    """Goes through a request's recorded verifications, one a verification, and round again.

    Fewer drafts than recorded: those accepted are the first of those that were. More: each further
    one is right as often as any was, as long as all before it are.

    Args:
        k: drafts that may be proposed at a time.
        random: gives numbers from 0 to below 1.
    """

    def __init__(
        self, works: list[WorkRequest], k: int, record: DraftRecord, random: Callable[[], float]
    ) -> None:
        self._works = works
        self._k = k
        self._record = record
        self._random = random
        self._nth: dict[int, int] = {}

    def num_proposed(self, request: int) -> int:
        """Returns how many drafts are proposed for a request now."""
        placed, _ = self._recorded(request)
        if placed is None:
            return self._k if self._record.acceptance is not None else 0
        is_full = placed >= self._record.num_speculative_tokens
        return self._k if is_full else min(self._k, placed)

    def num_accepted(self, request: int, num_placed: int) -> int:
        """Returns how many of a request's placed drafts are right, and goes on to the next."""
        placed, accepted = self._recorded(request)
        self._nth[request] = self._nth.get(request, 0) + 1
        if placed is None or accepted is None:
            placed = accepted = 0
        if accepted < placed:
            return min(accepted, num_placed)
        right = min(accepted, num_placed)
        while right < num_placed and self._random() < (self._record.acceptance or 0.0):
            right += 1
        return right

    def _recorded(self, request: int) -> tuple[int | None, int | None]:
        work = self._works[request]
        if not work.drafts_placed:
            return None, None
        nth = self._nth.get(request, 0) % len(work.drafts_placed)
        return work.drafts_placed[nth], work.drafts_accepted[nth]
