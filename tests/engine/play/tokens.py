"""The tokens of a run's model: each request has outputs of its own, and an end where it says."""

from __future__ import annotations

from engine.sampling import SamplingParams
from tests.engine.play.scenario import RequestPlan

EOS = 2
REFUSED = 3
"""The token that no grammar accepts."""


class RefusingGrammar:
    """A grammar that takes everything but one token."""

    key = "refuses one"

    def accepted_prefix(self, token_ids: list[int]) -> list[int]:
        if REFUSED in token_ids:
            return token_ids[: token_ids.index(REFUSED)]
        return token_ids


def output(number: int, n: int) -> int:
    """Returns the n-th output of a request, where that is not the end of its sequence."""
    return 1000 * (2 + number) + n


def sampling_of(number: int, plan: RequestPlan) -> SamplingParams:
    """Returns how a request's outputs end it."""
    return SamplingParams(
        max_tokens=plan.max_tokens,
        min_tokens=plan.min_tokens,
        ignore_eos=plan.ignore_eos,
        stop_token_ids=() if plan.stops_at is None else (output(number, plan.stops_at),),
    )
