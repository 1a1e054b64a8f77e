"""KV that comes from elsewhere: loads, their blocks, their failures, and blocks kept for sending.

An asynchronous load takes the blocks of what it brings and waits in the KV-holding queue until it
is received. It may only start if it leaves enough for prefills and loads that are under way: else
two requests could each hold half of the pool and wait for the other half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.kv_cache import PrefixHits
from engine.request import Request, RequestStatus
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput
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
    local = hits.num_tokens
    started = (request.num_computed_tokens, local, num_external_tokens)
    plan.loads_started[request.request_id] = started
    state.journal.connector(
        EventKind.load_started, request, num_external_tokens, state.kv.num_blocks_held(request)
    )
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
    """Takes in what the runner says of loads and of blocks that were sent."""
    for request_id in runner_output.finished_recving:
        request = state.requests.get(request_id)
        if request is None:
            release_kept(state, request_id)
        elif request.is_loading:
            request.is_loading = False
            request.has_loaded = True
            request.blocked_by = None
            state.journal.connector(EventKind.load_finished, request)
    for request_id in runner_output.finished_sending:
        release_kept(state, request_id)


def free_at_end(state: SchedulerState, request: Request) -> None:
    """Gives back the blocks of a request that ends, or keeps them while somebody needs them.

    That is a transfer (until the runner reports it), or a step in flight (until its update).
    """
    connector = state.connector
    if connector is not None:
        state.kv.expire(request)
        if request.is_loading or connector.delays_free(request):
            state.kept[request.request_id] = request
            return
        if state.defers_frees and request.in_flight:
            state.deferred_frees.append((state.last_busy_step, request))
            return
    state.kv.release(request)
    state.kv.forget(request)


def release_deferred(state: SchedulerState, step: int) -> None:
    """Gives back the blocks that waited for this step, in the order in which requests ended."""
    due = [request for until, request in state.deferred_frees if until <= step]
    if due:
        state.deferred_frees = [(u, r) for u, r in state.deferred_frees if u > step]
    for request in due:
        state.kv.release(request)
        state.kv.forget(request)


def release_kept(state: SchedulerState, request_id: str) -> None:
    """Gives back the blocks of a request that has ended."""
    request = state.kept.pop(request_id, None)
    if request is not None:
        state.kv.release(request)
        state.kv.forget(request)


# ------------------------------------------------------------------------------------- failed loads


def take_failures(
    state: SchedulerState, output: SchedulerOutput, runner_output: ModelRunnerOutput
) -> set[Request]:
    """Cuts back requests whose loads failed; returns those whose output of this step is void."""
    invalid = runner_output.invalid_block_ids
    failed = runner_output.failed_recving
    if not invalid and not failed:
        return set()
    for request in state.kv_holding_waiting:
        if request.is_loading:
            _cut_load(state, request, invalid, request.request_id in failed)
    return set(_cut_running(state, output, invalid))


def _fails_requests(state: SchedulerState) -> bool:
    connector = state.config.kv_connector
    return connector is not None and connector.load_failure_policy == "fail"


def _cut_load(state: SchedulerState, request: Request, invalid: Iterable[int], whole: bool) -> None:
    position = 0 if whole else state.kv.first_invalid_token(request, set(invalid))
    if position is None or position >= request.num_computed_tokens:
        return
    request.num_computed_tokens = position
    state.journal.connector(EventKind.load_failed, request)
    if _fails_requests(state):
        state.failed[request] = "its KV could not be loaded"


def _cut_running(
    state: SchedulerState, output: SchedulerOutput, invalid: Iterable[int]
) -> Iterator[Request]:
    """Cuts running requests back to their first block that failed to load.

    A block that several share is computed again by the first of them; the others only fall back to
    where they were before the step.
    """
    unclaimed, all_invalid = set(invalid), set(invalid)
    for request in state.running:
        num_tokens = output.num_scheduled_tokens.get(request.request_id)
        if num_tokens is None or request.status is not RequestStatus.RUNNING:
            continue
        before = request.num_computed_tokens - num_tokens
        position = state.kv.first_invalid_token(request, all_invalid)
        if position is None or position >= before:
            continue
        own = state.kv.first_invalid_token(request, unclaimed)
        unclaimed -= state.kv.blocks_from(request, position)
        request.num_computed_tokens = before if own is None or own >= before else own
        state.journal.connector(EventKind.load_failed, request)
        state.kv.uncache_from(request, position)
        if _fails_requests(state):
            state.failed[request] = "its KV could not be loaded"
        yield request
