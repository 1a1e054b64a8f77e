"""How a request ends: by its own tokens, from outside, or because something failed."""

from __future__ import annotations

from engine.request import Request, RequestStatus
from engine.scheduler.encoder_inputs import let_go_of_all
from engine.scheduler.kv_loads import free_at_end
from engine.scheduler.output import RequestOutput
from engine.scheduler.state import SchedulerState
from engine.scheduler.turns import end_turn
from telemetry.vocabulary import FinishReason


def finish(
    state: SchedulerState, request: Request, token_ids: tuple[int, ...], reason: FinishReason
) -> RequestOutput:
    """Ends a request whose last tokens have come, or only its turn where it is a session."""
    state.decodes.resting.pop(request, None)
    session = request.session
    is_turn = session is not None and end_turn(state, request, session, reason)
    if not is_turn:
        end(state, request, reason)
    return RequestOutput(
        request_id=request.request_id,
        new_token_ids=token_ids,
        finish_reason=reason,
        is_turn=is_turn,
    )


def end(state: SchedulerState, request: Request, reason: FinishReason) -> None:
    """Ends a request for good: its blocks go back, the runner is told in the next step."""
    if request.status is RequestStatus.PREEMPTED:  # its last token came after its eviction
        state.waiting.remove([request])
    state.journal.finished(request, reason)
    free_at_end(state, request)
    state.reserving.discard(request)
    state.decodes.resting.pop(request, None)
    let_go_of_all(state.encoder_cache, request)
    state.skipped.discard(request)
    request.status = RequestStatus.FINISHED
    request.finish_reason = reason
    del state.requests[request.request_id]
    state.finished_ids.add(request.request_id)


def end_from_outside(state: SchedulerState, requests: list[Request], reason: FinishReason) -> None:
    """Ends requests wherever they stand."""
    gone = set(requests)
    rows = [state.decodes.row_of(request) for request in gone if request.slot is not None]
    if rows:
        state.decodes.remove(sorted(rows))
    state.running = [request for request in state.running if request not in gone]
    if waiting := [request for request in gone if request.status is not RequestStatus.RUNNING]:
        state.waiting.remove(waiting)
        state.kv_holding_waiting.remove(waiting)
    for request in dict.fromkeys(requests):
        end(state, request, reason)


def end_failed(state: SchedulerState) -> list[RequestOutput]:
    """Ends the requests that were found to have failed in this step."""
    if not state.failed:
        return []
    failed, state.failed = state.failed, {}
    failed = {request: why for request, why in failed.items() if not request.is_finished}
    if failed:
        end_from_outside(state, list(failed), FinishReason.error)
    return [
        RequestOutput(request_id=request.request_id, finish_reason=FinishReason.error, error=why)
        for request, why in failed.items()
    ]
