"""The waiting scan: who is let in, who is set aside, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.kv_cache import PrefixHits, Shortage
from engine.request import Request, RequestStatus
from engine.scheduler.async_output import awaits_stale_output
from engine.scheduler.chunk_alignment import aligned
from engine.scheduler.encoder_inputs import (
    MismatchedItemError,
    enter_items,
    fit_encoder_inputs,
    let_go_of_all,
)
from engine.scheduler.encoder_loads import waits_for_items
from engine.scheduler.input_budget import room_for_another
from engine.scheduler.kv_loads import promote, start_load
from engine.scheduler.plan import AdmissionStop, Grant, StepPlan
from engine.scheduler.queues import RequestQueue
from engine.scheduler.speculation import PLACEHOLDER
from engine.scheduler.state import PauseState, SchedulerState
from telemetry.vocabulary import SkipReason, StopReason

QUEUE_EMPTY = AdmissionStop(StopReason.queue_empty)


def admit_waiting(state: SchedulerState, plan: StepPlan) -> AdmissionStop:
    """Lets waiting requests in, until one limit ends the scan."""
    stop = QUEUE_EMPTY
    if state.num_waiting:
        num_sessions = state.num_waiting_sessions
        stop = _limit(state, plan, num_sessions) or _scan(state, plan, num_sessions)
    _remember_who_was_left(state, plan)
    return stop


def _scan(state: SchedulerState, plan: StepPlan, num_sessions: int) -> AdmissionStop:
    """Goes through the waiting requests.

    Who cannot run for a reason of its own is set aside and the scan goes on; who does not fit
    ends it for all behind.
    """
    set_aside: list[tuple[RequestQueue, Request]] = []
    adapters = plan.adapters()
    padding = _Padding.of(state, plan)
    while (stop := _limit(state, plan, num_sessions)) is None:
        queue = state.head_queue()
        request = queue.peek()
        assert request is not None
        start = _ready(state, plan, request, adapters)
        if isinstance(start, SkipReason):
            queue.pop()
            state.set_aside(request, start)
            set_aside.append((state.queue_of(request), request))
            continue
        stop = _admit(state, request, plan, padding, start)
        if stop is not None:
            break
        queue.pop()
        if request.is_loading:
            state.set_aside(request, SkipReason.load_started)
            set_aside.append((state.kv_holding_waiting, request))
            continue
        if request.adapter is not None:
            adapters.add(request.adapter)
    for queue, request in reversed(set_aside):
        queue.put_back(request)
    return stop


@dataclass(frozen=True, slots=True)
class _Padding:
    """Whether who is admitted with one token to do is padded to the size of a verification.

    Not beside a running request in mid-prefill, and only in company or behind a prefix hit.
    """

    num_drafts: int
    in_company: bool
    max_model_len: int

    @classmethod
    def of(cls, state: SchedulerState, plan: StepPlan) -> _Padding:
        """Returns the rule of this step, from what the running scan has granted."""
        beside_prefill = any(grant.request.is_prefill_chunk for grant in plan.grants.values())
        num_drafts = 0 if beside_prefill else state.config.speculation.num_speculative_tokens
        return cls(num_drafts, bool(plan.grants), state.limits.max_model_len)

    def drafts_for(self, num_wanted: int, num_computed_tokens: int) -> int:
        """Returns how many placeholders an admission gets."""
        if num_wanted != 1 or not (self.in_company or num_computed_tokens > 0):
            return 0
        fits = num_computed_tokens + 1 + self.num_drafts + 1 <= self.max_model_len
        return self.num_drafts if fits else 0


def _limit(state: SchedulerState, plan: StepPlan, num_sessions: int) -> AdmissionStop | None:
    """Returns the limit that keeps the next one out whoever it is; None if there is none.

    A session between two turns keeps its slot.
    """
    limits = state.limits
    head = state.head_queue().peek()
    if head is None:
        return QUEUE_EMPTY
    if state.pause is PauseState.PAUSED_ALL:
        return AdmissionStop(StopReason.paused_all)
    if plan.preempted:
        return AdmissionStop(StopReason.preempted_this_step)
    if plan.token_budget <= 0:
        return AdmissionStop(StopReason.token_budget, head)
    if room_for_another(state, plan) <= 0:
        return AdmissionStop(StopReason.input_budget, head)
    if state.pause is PauseState.PAUSED_NEW and not len(state.kv_holding_waiting):
        return AdmissionStop(StopReason.paused_new, head)
    if len(state.running) + num_sessions >= limits.active_seqs:
        if limits.active_seqs < limits.max_num_seqs:
            return AdmissionStop(StopReason.max_num_active_seqs, head)
        return AdmissionStop(StopReason.max_num_seqs, head)
    return None


def _ready(
    state: SchedulerState, plan: StepPlan, request: Request, adapters: set[str]
) -> _Start | SkipReason:
    """Returns where a request would start, or why it is set aside while others go on."""
    if request.blocked_by is SkipReason.grammar_failed:
        state.failed[request] = "the grammar could not be compiled"
    if request.blocked_by is not None:
        return request.blocked_by
    if request.has_loaded:
        promote(state, request)
    skip = _skip_reason(state, request, adapters)
    if skip is not None:
        return skip
    start = _start_of(state, request)
    if isinstance(start, SkipReason) or start.loads_async:
        return start
    waits = waits_for_items(state, plan, request, start.num_computed_tokens)
    return SkipReason.encoder_transfer if waits else start


def _skip_reason(state: SchedulerState, request: Request, adapters: set[str]) -> SkipReason | None:
    """Returns why a request that is ready is set aside while others go on; None if it may run."""
    if awaits_stale_output(request):
        return SkipReason.stale_output
    limit = state.limits.max_loras
    if limit is None or request.adapter is None or request.adapter in adapters:
        return None
    return SkipReason.lora_slots if len(adapters) >= limit else None


def _admit(
    state: SchedulerState, request: Request, plan: StepPlan, padding: _Padding, start: _Start
) -> AdmissionStop | None:
    """Moves a request to the running list with its first chunk, or says what keeps it out.

    A request whose KV is loaded beside the steps gets the blocks for that, and waits.
    """
    if start.loads_async and start.hits is not None:
        return _start_load(state, request, plan, start, start.hits)
    num_wanted = request.num_tokens - start.num_computed_tokens
    if plan.defers_prefills and num_wanted > 1:
        return AdmissionStop(StopReason.prefill_throttled, request)
    num_drafts = padding.drafts_for(num_wanted, start.num_computed_tokens)
    room = room_for_another(state, plan)
    if num_drafts and 1 + num_drafts > room:
        return AdmissionStop(StopReason.draft_padding, request)
    num_tokens = plan.capped(num_wanted + num_drafts)
    if num_tokens > room and not state.limits.enable_chunked_prefill:
        return AdmissionStop(StopReason.chunked_prefill_disabled, request)
    first = start.num_computed_tokens
    try:
        fit = fit_encoder_inputs(state, plan, request, first, min(num_tokens, room))
        fit = aligned(state, request, first, fit)
    except MismatchedItemError as error:
        state.failed[request] = str(error)
        return AdmissionStop(StopReason.encoder_cache, request)
    num_tokens = fit.num_tokens
    if num_tokens <= 0:
        return AdmissionStop(fit.stop_reason, request)
    shortage = _take_blocks(state, request, start, num_tokens)
    if shortage is not None:
        let_go_of_all(state.encoder_cache, request)
        return AdmissionStop(shortage.reason, request, shortage.num_blocks_needed)
    if start.hits is not None and state.kv.looks_up(request):
        state.prefix_cache_stats.count(request, start.hits.num_tokens)
    _enter_running(state, request, start.num_computed_tokens, plan)
    if state.connector is not None and num_tokens < num_wanted:
        state.reserving.add(request)
    placeholders = [PLACEHOLDER] * max(0, num_tokens - num_wanted)
    blocks = state.kv.block_ids(request)
    num_hit_tokens = None if start.hits is None else start.hits.num_tokens
    plan.num_hit_tokens[request.request_id] = num_hit_tokens
    if start.hits is not None and start.hits.num_tokens_full_group is not None:
        plan.num_hit_tokens_full_group[request.request_id] = start.hits.num_tokens_full_group
    plan.num_external_tokens[request.request_id] = start.num_external_tokens
    grant = Grant(request, num_wanted, num_tokens, blocks, placeholders, fit.items)
    plan.give(grant)
    enter_items(state, grant)
    state.journal.admitted(request, plan)
    return None


@dataclass(frozen=True, slots=True)
class _Start:
    """Where an admission begins to compute: behind its hits, or behind what it holds already."""

    num_computed_tokens: int
    hits: PrefixHits | None
    """None where there is no look-up: the request holds blocks."""
    num_external_tokens: int = 0
    """Tokens that a connector brings behind the hits."""
    loads_async: bool = False


def _start_of(state: SchedulerState, request: Request) -> _Start | SkipReason:
    """Looks a request up, here and at the connector; the reason to wait if that cannot tell yet."""
    if state.kv.holds(request):
        return _Start(request.num_computed_tokens, None)
    hits = state.kv.find_hits(request)
    if state.connector is None or not request.reads_prefix_cache:
        return _Start(hits.num_tokens, hits)
    if request.request_id in state.transfers.given_up:
        return _Start(hits.num_tokens, hits)
    external = state.connector.num_external_tokens(request, hits.num_tokens)
    loads_async = bool(external) and state.connector.loads_async(request)
    state.journal.looked_up(request, hits.num_tokens, external, is_async=loads_async)
    if external is None:
        return SkipReason.remote_kv_lookup_pending
    return _Start(hits.num_tokens + external, hits, external, loads_async)


def _start_load(
    state: SchedulerState, request: Request, plan: StepPlan, start: _Start, hits: PrefixHits
) -> AdmissionStop | None:
    stop = start_load(state, request, plan, hits, start.num_external_tokens)
    if stop is None and state.kv.looks_up(request):
        state.prefix_cache_stats.count(request, hits.num_tokens)
    return stop


def _take_blocks(
    state: SchedulerState, request: Request, start: _Start, num_tokens: int
) -> Shortage | None:
    """Gives an admission its blocks, or says what it lacks."""
    busy = bool(state.running)
    if start.hits is None:
        return state.kv.admit_holder(request, num_tokens, spare_watermark=busy)
    return state.kv.admit(
        request,
        start.hits,
        num_tokens,
        num_external_tokens=start.num_external_tokens,
        spare_watermark=busy,
    )


def _enter_running(
    state: SchedulerState, request: Request, num_computed_tokens: int, plan: StepPlan
) -> None:
    resumed = request.status is RequestStatus.PREEMPTED
    (plan.resumed if resumed else plan.admitted).append(request)
    request.is_catching_up = resumed
    request.status = RequestStatus.RUNNING
    request.num_computed_tokens = num_computed_tokens
    request.skipped_for = None
    state.skipped.discard(request)
    state.running.append(request)


def _remember_who_was_left(state: SchedulerState, plan: StepPlan) -> None:
    """Notes for later throttled steps whether this scan left requests that could have run."""
    ran = not plan.preempted and state.pause is not PauseState.PAUSED_ALL
    if ran and not plan.defers_prefills:
        num_waiting = state.num_waiting
        state.left_ready_waiting = num_waiting > 0 and num_waiting > len(state.skipped)
