"""The running scan: who holds a slot is served first, in the order of admission."""

from __future__ import annotations

from engine.kv_cache import BlockIds
from engine.request import Request
from engine.scheduler.async_output import reaches_its_end
from engine.scheduler.chunk_alignment import aligned
from engine.scheduler.decode_scan import serve_decodes
from engine.scheduler.encoder_inputs import (
    EncoderFit,
    MismatchedItemError,
    enter_items,
    fit_encoder_inputs,
)
from engine.scheduler.input_budget import room_for_another
from engine.scheduler.pipeline_cadence import is_in_pipeline
from engine.scheduler.plan import Grant, StepPlan
from engine.scheduler.preemption import preempt
from engine.scheduler.queues import choose_victim
from engine.scheduler.speculation import drafts_within
from engine.scheduler.state import PauseState, SchedulerState
from telemetry.vocabulary import ZeroReason


def serve_running(state: SchedulerState, plan: StepPlan) -> None:
    """Serves the running list in its order, until the budget or the blocks run out."""
    end = serve_decodes(state, plan)
    if end is not None:
        _note_unserved(state, plan, end)
        return
    index = state.decodes.num_in_front
    while index < len(state.running) and room_for_another(state, plan) > 0:
        request = state.running[index]
        num_wanted = request.num_tokens_with_drafts - request.num_computed_tokens
        fit = _tokens_for(state, plan, request, num_wanted)
        if fit.num_tokens <= 0:
            plan.gave_nothing(request, num_wanted, fit.cut_by or ZeroReason.max_model_len)
            index += 1
            continue
        new_blocks = _extend_or_preempt(state, request, fit.num_tokens, plan)
        if new_blocks is None:
            break
        _grant(state, plan, request, num_wanted, fit, new_blocks)
        index = state.running.index(request, max(0, index - len(plan.preempted))) + 1
    _note_unserved(state, plan, index)


def _tokens_for(
    state: SchedulerState, plan: StepPlan, request: Request, num_wanted: int
) -> EncoderFit:
    """Returns how many tokens a running request may have, and what cut them if anything did."""
    if plan.defers_prefills and request.is_prefill_chunk:
        return EncoderFit(0, cut_by=ZeroReason.prefill_throttled)
    if reaches_its_end(request):
        return EncoderFit(0, cut_by=ZeroReason.max_tokens_in_flight)
    if is_in_pipeline(request, plan.step):
        return EncoderFit(0, cut_by=ZeroReason.pipeline_cadence)
    start = request.num_computed_tokens
    room = min(state.limits.max_model_len - 1 - start, room_for_another(state, plan))
    num_tokens = min(plan.capped(num_wanted), room)
    try:
        fit = fit_encoder_inputs(state, plan, request, start, num_tokens)
        return aligned(state, request, start, fit)
    except MismatchedItemError as error:
        state.failed[request] = str(error)
        return EncoderFit(0, cut_by=ZeroReason.encoder_cache)


def _grant(
    state: SchedulerState,
    plan: StepPlan,
    request: Request,
    num_wanted: int,
    fit: EncoderFit,
    new_blocks: BlockIds,
) -> None:
    """Gives a running request its tokens, with the drafts and encoder items they reach."""
    drafts = drafts_within(request, fit.num_tokens)
    request.draft_token_ids = []
    grant = Grant(request, num_wanted, fit.num_tokens, new_blocks, drafts, fit.items)
    plan.give(grant)
    enter_items(state, grant)


def _extend_or_preempt(
    state: SchedulerState, request: Request, num_tokens: int, plan: StepPlan
) -> BlockIds | None:
    """Finds blocks for a running request, preempting until they suffice.

    Returns None when the request had to go itself, or nobody could go now.
    """
    while (new_blocks := state.kv.extend(request, num_tokens)) is None:
        victim = choose_victim(state.limits.policy, state.running)
        if state.defers_frees and victim.in_flight:
            plan.victim_not_releasable = True
            return None
        needed = state.kv.num_blocks_missing(request, num_tokens)
        preempt(state, victim, beneficiary=request, plan=plan, num_blocks_needed=needed)
        if victim is request:
            return None
    state.journal.beneficiary_allocated(request)
    return new_blocks


def _note_unserved(state: SchedulerState, plan: StepPlan, index: int) -> None:
    """Gives everybody that the running scan did not reach a reason."""
    if index == len(state.running):
        return
    reason = ZeroReason.behind_preempted
    if plan.victim_not_releasable:
        reason = ZeroReason.victim_not_releasable
    elif state.pause is PauseState.PAUSED_ALL:
        reason = ZeroReason.paused_all
    elif room_for_another(state, plan) <= 0:
        reason = ZeroReason.token_budget
    for request in state.running[index:]:
        num_wanted = request.num_tokens_with_drafts - request.num_computed_tokens
        plan.gave_nothing(request, num_wanted, reason)
