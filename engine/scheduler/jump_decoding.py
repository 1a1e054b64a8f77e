"""Jump decoding: tokens that become known without being sampled.

Where a grammar leaves one choice for the next k tokens, nobody has to compute which they are. They
are appended at once, and the request catches up in the ordinary loop: its known tokens have grown
by k, so its next grant is up to k + 1 tokens, of which the last gives the next sampled one.

    known     p p p p o              p p p p o j j j            p p p p o j j j o
    computed  p p p p                p p p p                    p p p p o j j j
                        3 tokens jump            a grant of 4

They count as outputs: they reach the client, `max_tokens` and `max_model_len` count them, an end
token among them ends the request and the rest is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request, StaleOutput
from engine.scheduler.state import SchedulerState
from engine.scheduler.stopping import stop_after
from telemetry.vocabulary import FinishReason


def request_to_extend(state: SchedulerState, request_id: str) -> Request:
    """Returns a request whose next tokens can be told from outside.

    Raises:
        ValueError: it is not here, is a session, or its next token is being computed.
    """
    request = state.requests.get(request_id)
    if request is None:
        raise ValueError(f"request {request_id!r} is not here: it was never added, or has ended")
    state.settle()
    if request.session is not None:
        raise ValueError(f"request {request_id!r} is a session: only its model speaks in a turn")
    if _awaits_token(request):
        raise ValueError(
            f"request {request_id!r} has a token on its way, and what is appended comes after it: "
            "append after the update that brings it"
        )
    if request.slot is not None:
        state.decodes.keep_first(state.decodes.row_of(request))
    return request


def _awaits_token(request: Request) -> bool:
    """Whether a step in flight is going to give the request its next token."""
    if request.num_output_placeholders or request.num_computed_tokens >= request.num_tokens:
        return not request.is_loading and not request.has_loaded
    return any(request.stale.get(step) is StaleOutput.DELIVERED for step in request.in_flight)


def append_known(
    request: Request, token_ids: Sequence[int], max_model_len: int
) -> tuple[list[int], FinishReason | None]:
    """Appends tokens up to the one that ends the request; returns those, and why it ends if so.

    Drafts are dropped: they were guesses at the tokens that are known now.
    """
    kept: list[int] = []
    reason = None
    for token_id in token_ids:
        request.token_ids.append(token_id)
        kept.append(token_id)
        reason = stop_after(request, token_id, max_model_len)
        if reason is not None:
            break
    request.untold_token_ids += kept
    request.draft_token_ids = []
    return kept, reason
