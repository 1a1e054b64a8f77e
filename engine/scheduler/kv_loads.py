"""KV that comes from elsewhere: loads, their blocks, their failures, and blocks kept for sending.

An asynchronous load takes the blocks of what it brings and waits in the KV-holding queue until it
is received. It may only start if it leaves enough for prefills and loads that are under way: else
two requests could each hold half of the pool and wait for the other half.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.kv_cache import PrefixHits
from engine.request import Request, RequestStatus, StaleOutput
from engine.scheduler.async_output import make_stale
from engine.scheduler.output import KVSaves, ModelRunnerOutput, SchedulerOutput
from engine.scheduler.plan import AdmissionStop, StepPlan
from engine.scheduler.state import SchedulerState
from telemetry.vocabulary import EventKind, SkipReason

# --------------------------------------------------------------------------------- start and end


def start_load(
    state: SchedulerState,
    request: Request,
    plan: StepPlan,
    hits: PrefixHits,
    num_external_tokens: int,
) -> AdmissionStop | None:
    """Starts an asynchronous load, or says what keeps it from starting."""
    shortage = state.kv.take_for_load(
        request,
        hits,
        num_external_tokens,
        spare_watermark=bool(state.running),
        num_blocks_reserved=_blocks_reserved(state, request),
    )
    if shortage is not None:
        return AdmissionStop(shortage.reason, request, shortage.num_blocks_needed)
    request.num_computed_tokens = hits.num_tokens + num_external_tokens
    request.blocked_by = SkipReason.remote_kv_loading
    request.is_loading = True
    state.reserving.add(request)
    state.transfers.loads_since[request] = state.clock()
    local = hits.num_tokens
    started = (request.num_computed_tokens, local, num_external_tokens)
    plan.loads_started[request.request_id] = started
    state.journal.load_started(request, local, num_external_tokens)
    return None


def promote(state: SchedulerState, request: Request) -> None:
    """Makes a request whose load has been received an ordinary holder of its blocks.

    Where nothing of it came, the blocks go back and the request starts over; where all came, the
    last token is computed again, for its output.
    """
    request.has_loaded = False
    if request.num_computed_tokens == 0:
        state.kv.release(request)
        return
    state.kv.enter_computed(request)
    if request.num_computed_tokens == request.num_tokens:
        request.num_computed_tokens -= 1


def _blocks_reserved(state: SchedulerState, newcomer: Request) -> int:
    """Returns the blocks that prefills and loads under way still need.

    A load that failed and starts over counts itself in, as the original does, but not where nothing
    else could ever give blocks back: it would wait for ever.
    """
    speculation = state.config.speculation
    drafts = speculation.num_speculative_tokens
    extra = 1 + drafts + speculation.num_lookahead_tokens if drafts else 0
    under_way = state.reserving
    if not state.running and under_way <= {newcomer}:
        under_way = set()
    reserved = sum(state.kv.num_blocks_lacking(request, extra) for request in under_way)
    return reserved + state.kv.num_blocks_of(extra)


# -------------------------------------------------------------------------- what the runner reports


def receive(state: SchedulerState, runner_output: ModelRunnerOutput) -> None:
    """Takes in what the runner says of loads, of blocks that were sent, and of saves.

    The late end of a load that was given up frees its blocks, and says nothing of its request.
    """
    for request_id in sorted(runner_output.finished_recving):
        request = state.requests.get(request_id)
        if request_id in state.transfers.given_up:
            release_given_up(state, request_id, EventKind.load_finished)
        elif request is None:
            release_kept(state, request_id, EventKind.load_finished)
        elif request.is_loading:
            state.transfers.loads_since.pop(request, None)
            request.is_loading = False
            request.has_loaded = True
            request.blocked_by = None
            state.journal.connector(EventKind.load_finished, request)
    if runner_output.kv_saves is not None:  # before the end of what is kept for them
        _note_saves(state, runner_output.kv_saves)
    for request_id in sorted(runner_output.finished_sending):
        release_kept(state, request_id, EventKind.ack_received)


def _note_saves(state: SchedulerState, saves: KVSaves) -> None:
    """Writes down what the runner says of KV that is stored elsewhere; nothing waits for it."""
    stages = (
        (EventKind.save_started, saves.started),
        (EventKind.save_finished, saves.finished),
        (EventKind.save_failed, saves.failed),
    )
    for kind, request_ids in stages:
        for request_id in sorted(request_ids):
            request = state.requests.get(request_id) or state.kept.get(request_id)
            if request is not None:
                state.journal.connector(kind, request)


def free_at_end(state: SchedulerState, request: Request) -> None:
    """Gives back the blocks of a request that ends, or keeps them while somebody needs them.

    That is a transfer (until the runner reports it), or a step in flight (until its update).
    """
    connector = state.connector
    if connector is not None:
        executing = state.executing.get(request.request_id, 0)
        state.kv.expire(request, num_executing_tokens=executing)
        if request.is_loading or connector.delays_free(request):
            _keep(state, request)
            return
        if must_wait_for_step(state, request):
            defer_free(state, request)
            state.kv.forget(request)
            return
    state.kv.release(request)
    state.kv.forget(request)


def must_wait_for_step(state: SchedulerState, request: Request) -> bool:
    """Whether a step in flight may still write into blocks that a request holds."""
    is_in_flight = state.defers_frees and bool(request.in_flight)
    return is_in_flight and state.kv.num_blocks_held(request) > 0


def defer_free(state: SchedulerState, request: Request) -> None:
    """Takes a request's blocks from it; they are free once all steps in flight are taken in."""
    state.deferred_frees.append((state.last_busy_step, state.kv.set_apart(request)))


def _keep(state: SchedulerState, request: Request) -> None:
    """Keeps the blocks of a request that ends until its transfer has ended."""
    now = state.clock()
    state.kept[request.request_id] = request
    state.transfers.kept_since[request.request_id] = now
    if request.is_loading:
        state.transfers.loads_since.pop(request, None)
        return
    state.transfers.acks_since[request.request_id] = now
    held = state.kv.num_blocks_held(request)
    state.journal.connector(EventKind.ack_wait_started, request, num_blocks=held)


def release_deferred(state: SchedulerState, step: int) -> None:
    """Gives back the blocks that waited for this step, in the order in which requests ended."""
    if not state.deferred_frees:
        return
    due = [ticket for until, ticket in state.deferred_frees if until <= step]
    state.deferred_frees = [(u, ticket) for u, ticket in state.deferred_frees if u > step]
    for ticket in due:
        state.kv.release_set_apart(ticket)


def release_kept(state: SchedulerState, request_id: str, why: EventKind) -> None:
    """Gives back the blocks of a request that has ended."""
    request = state.kept.pop(request_id, None)
    if request is not None:
        state.transfers.kept_since.pop(request_id, None)
        state.transfers.acks_since.pop(request_id, None)
        state.journal.connector(why, request, num_blocks=state.kv.num_blocks_held(request))
        state.kv.release(request)
        state.kv.forget(request)


def release_given_up(state: SchedulerState, request_id: str, why: EventKind) -> None:
    """Gives back the blocks of a load that its request did not wait for."""
    lost = state.transfers.given_up.pop(request_id)
    num_blocks = state.kv.num_blocks_set_apart(lost.ticket)
    state.journal.connector(why, lost.request, num_blocks=num_blocks)
    state.kv.release_set_apart(lost.ticket)


# ------------------------------------------------------------------------------------- failed loads


def take_failures(
    state: SchedulerState, output: SchedulerOutput, runner_output: ModelRunnerOutput
) -> set[Request]:
    """Cuts back requests whose loads failed; returns those whose output of this step is void."""
    invalid = runner_output.invalid_block_ids
    failed = runner_output.failed_recving
    if not invalid and not failed:
        return set()
    if invalid:
        state.decodes.dissolve()
    for request in state.kv_holding_waiting:
        if request.is_loading:
            _cut_load(state, request, runner_output)
    return set(_cut_running(state, output, runner_output))


def fails_requests(state: SchedulerState) -> bool:
    """Whether a load that fails ends its request."""
    connector = state.config.kv_connector
    return connector is not None and connector.load_failure_policy == "fail"


def _cut_load(state: SchedulerState, request: Request, runner_output: ModelRunnerOutput) -> None:
    invalid, name = runner_output.invalid_block_ids, request.request_id
    whole = name in runner_output.failed_recving
    position = 0 if whole else state.kv.first_invalid_token(request, set(invalid))
    if position is None or position >= request.num_computed_tokens:
        return
    request.num_computed_tokens = position
    places = None if whole else state.kv.places_of(request, invalid)
    state.journal.load_failed(request, places, runner_output.recving_errors.get(name))
    if fails_requests(state):
        state.failed[request] = "its KV could not be loaded"


def _cut_running(
    state: SchedulerState, output: SchedulerOutput, runner_output: ModelRunnerOutput
) -> Iterator[Request]:
    """Cuts running requests back to their first block that failed to load.

    A block that several share is computed again by the first of them; the others only fall back to
    where they were before the step. What steps in flight bring for any of them was computed from
    KV that is not there, and is dropped.
    """
    unclaimed, all_invalid = (set(runner_output.invalid_block_ids) for _ in range(2))
    for request in state.running:
        num_tokens = output.num_scheduled_tokens.get(request.request_id)
        if num_tokens is None or request.status is not RequestStatus.RUNNING:
            continue
        num_in_flight = max(num_tokens, request.num_in_flight_tokens)
        before = request.num_computed_tokens - num_in_flight
        position = state.kv.first_invalid_token(request, all_invalid)
        if position is None or position >= before:
            continue
        own = state.kv.first_invalid_token(request, unclaimed)
        unclaimed -= state.kv.blocks_from(request, position)
        request.num_computed_tokens = before if own is None or own >= before else own
        make_stale(request, StaleOutput.DROPPED)
        if request.in_flight:
            request.draft_token_ids = []
        why = runner_output.recving_errors.get(request.request_id)
        state.journal.load_failed(request, state.kv.places_of(request, all_invalid), why)
        state.kv.uncache_from(request, position)
        if fails_requests(state):
            state.failed[request] = "its KV could not be loaded"
        yield request
