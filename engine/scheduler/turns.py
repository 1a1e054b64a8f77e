"""Turns of streaming sessions: how one ends, and how the next begins."""

from __future__ import annotations

from dataclasses import replace

from engine.request import Request, RequestStatus, StaleOutput
from engine.scheduler.async_output import make_stale
from engine.scheduler.state import SchedulerState
from engine.session import Session, SessionInput
from telemetry.vocabulary import FinishReason, SkipReason


def session_of(state: SchedulerState, request_id: str) -> tuple[Request, Session]:
    """Returns a request that is a session.

    Raises:
        ValueError: it is not here, or not a session.
    """
    request = state.requests.get(request_id)
    if request is None or request.session is None:
        raise ValueError(f"request {request_id!r} is no open session: open one first")
    return request, request.session


def waits_for_input(request: Request) -> bool:
    """Whether a session's turn is over and nothing has been said since."""
    return request.blocked_by is SkipReason.streaming_input


def end_turn(
    state: SchedulerState, request: Request, session: Session, reason: FinishReason
) -> bool:
    """Ends a session's turn; returns False where that is the end of the session too."""
    if session.is_closed and not session.queued:
        return False
    if request.status is RequestStatus.PREEMPTED:  # its last token came after its eviction
        state.waiting.remove([request])
    request.status = RequestStatus.WAITING
    request.num_computed_tokens -= request.num_output_placeholders
    request.draft_token_ids = []
    make_stale(request, StaleOutput.DROPPED)
    state.journal.turn_finished(request, reason)
    piece = session.queued.popleft() if session.queued else None
    if piece is not None:
        begin_turn(state, request, piece)
    state.queue_of(request).add(request)
    if piece is None:
        request.blocked_by = SkipReason.streaming_input
        state.set_aside(request, SkipReason.streaming_input)
    return True


def begin_turn(state: SchedulerState, request: Request, piece: SessionInput) -> None:
    """Appends a piece of input to a session whose turn is over.

    The last sampled token, which was never computed, is dropped. A session that has lost its blocks
    since has nothing computed, and loses no more than that token for it.
    """
    end = request.num_computed_tokens or request.num_tokens - 1
    del request.token_ids[end:]
    state.kv.forget_keys_from(request, end)
    request.token_ids.extend(piece.token_ids)
    request.num_prompt_tokens = len(request.token_ids)
    request.sampling = replace(
        request.sampling,
        max_tokens=piece.max_tokens,
        min_tokens=min(request.sampling.min_tokens, piece.max_tokens),
    )
    request.arrival_time = piece.arrival_time
    if waits_for_input(request):
        state.queue_of(request).rekey(request)
    request.blocked_by = None
    state.journal.input_added(request, piece)
