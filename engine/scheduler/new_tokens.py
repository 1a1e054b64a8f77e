"""What an update brings to ordinary requests: their new tokens, and what those settle."""

from __future__ import annotations

from collections.abc import Collection

from engine.request import Request, RequestStatus, StaleOutput
from engine.scheduler.decode_scan import take_rows
from engine.scheduler.encoder_inputs import let_go_of_passed
from engine.scheduler.ending import finish
from engine.scheduler.output import (
    DecodeBatch,
    DecodeOutputs,
    ModelRunnerOutput,
    RequestOutput,
    SchedulerOutput,
    StepOutputs,
)
from engine.scheduler.state import SchedulerState
from engine.scheduler.stopping import stop_after


def take_tokens(
    state: SchedulerState,
    output: SchedulerOutput,
    runner_output: ModelRunnerOutput,
    void: Collection[Request],
) -> StepOutputs:
    """Takes in the tokens of a step; returns the results in scheduling order.

    Args:
        void: requests whose output of this step means nothing.
    """
    arrived = _Arrived(state, output, runner_output, void)
    decodes = arrived.results_of_decodes(output.decodes)
    others = [
        result
        for name in output.other_scheduled_tokens
        if (request := state.requests.get(name)) is not None
        and (result := arrived.result_of(request)) is not None
    ]
    if arrived.has_ended:
        first = 0 if state.limits.async_scheduling else len(state.decodes)
        still = [r for r in state.running[first:] if r.status is RequestStatus.RUNNING]
        state.running[first:] = still
    return StepOutputs(others, decodes)


class _Arrived:
    """The tokens of a step on their way to its requests, whichever path each of them is on."""

    def __init__(
        self,
        state: SchedulerState,
        output: SchedulerOutput,
        runner_output: ModelRunnerOutput,
        void: Collection[Request],
    ) -> None:
        self.has_ended = False
        """Whether a request has ended that is no row."""
        self._state = state
        self._output = output
        self._runner_output = runner_output
        self._void = void
        batch = output.decodes
        self._have_changed = batch is not None and batch.order is not state.decodes.order
        self._sampled = runner_output.sampled_token_ids
        if batch is not None and self._have_changed:
            self._sampled = runner_output.all_sampled(batch)
        self._ending = take_rows(state, output, runner_output, self._sampled)

    def results_of_decodes(self, batch: DecodeBatch | None) -> DecodeOutputs | None:
        """Returns the results of those that were rows when the step was decided."""
        if batch is None:
            return None
        column = self._runner_output.decode_column(batch)
        is_as_decided = not self._have_changed and self._state.decodes.order.requests
        if is_as_decided and not self._ending:
            return DecodeOutputs(batch, column, {})
        requests = batch.order.requests
        if is_as_decided:
            changed = [requests.index(request) for request in self._ending]
        else:
            changed = [row for row, request in enumerate(requests) if request.slot is None]
        told = {row: self.result_of(requests[row]) for row in changed}
        return DecodeOutputs(batch, column, told)

    def result_of(self, request: Request) -> RequestOutput | None:
        """Gives a request its tokens; None where it wants none, or there are none."""
        reason = self._ending.get(request)
        if reason is not None:
            return finish(self._state, request, (request.token_ids[-1],), reason)
        token_ids = self._sampled.get(request.request_id, [])
        if request.slot is not None:
            return RequestOutput(request_id=request.request_id, new_token_ids=tuple(token_ids))
        if not _still_wants(self._state, request, self._output.step):
            return None
        if request in self._void:
            return None
        if not token_ids:
            let_go_of_passed(self._state, request)
            return None
        result = _append(self._state, request, token_ids, self._output)
        self.has_ended |= result.finish_reason is not None
        return result


def _still_wants(state: SchedulerState, request: Request, step: int) -> bool:
    """Whether a request that is no row still wants a step's output."""
    if request.is_finished:
        return False
    if state.limits.max_concurrent_batches == 1:
        return request.status is RequestStatus.RUNNING
    if request.in_flight.pop(step, None) is None:
        return False
    if request.stale.get(step) is StaleOutput.DROPPED:
        del request.stale[step]
        return False
    return True


def _append(
    state: SchedulerState, request: Request, token_ids: list[int], output: SchedulerOutput
) -> RequestOutput:
    """Appends a request's new tokens up to the one that ends it; forgets rejected drafts."""
    is_stale = request.stale.pop(output.step, None) is not None
    num_drafts = len(output.scheduled_spec_decode_tokens.get(request.request_id, ()))
    if num_drafts:
        _settle_drafts(state, request, num_drafts, len(token_ids) - 1, is_stale=is_stale)
    let_go_of_passed(state, request)
    kept: list[int] = []
    reason = None
    for token_id in token_ids:
        request.token_ids.append(token_id)
        kept.append(token_id)
        reason = stop_after(request, token_id, state.limits.max_model_len)
        if reason is not None:
            break
    state.journal.got_tokens(request)
    if state.limits.async_scheduling and not is_stale:
        request.num_output_placeholders -= len(kept)
        state.kv.enter_computed(request)
    if reason is not None:
        return finish(state, request, tuple(kept), reason)
    return RequestOutput(request_id=request.request_id, new_token_ids=tuple(kept))


def _settle_drafts(
    state: SchedulerState, request: Request, num_drafts: int, num_accepted: int, *, is_stale: bool
) -> None:
    """Counts rejected drafts as not computed, unless all was lost with an eviction since."""
    num_rejected = 0 if is_stale else num_drafts - num_accepted
    request.num_computed_tokens -= num_rejected
    if state.limits.async_scheduling:
        request.num_output_placeholders -= num_rejected
    state.speculation_stats.count(num_drafts, num_accepted)
    state.journal.verified(request, num_drafts, num_accepted)
