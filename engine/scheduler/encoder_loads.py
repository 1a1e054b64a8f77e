"""Encoder outputs from elsewhere: sent for when a request reaches the item, then waited for.

    in the window, not cached ──has──► sent for, space taken ──received──► cached, held by nobody
                 ▲                               │
                 └───── encoded here ◄───────────┘ failed

A request whose window holds an item on its way is not scheduled over it: a waiting one is set aside
(`SkipReason.encoder_transfer`), a running one gets the tokens before the item, or none
(`ZeroReason.encoder_transfer`). What has arrived can be evicted until somebody holds it; since who
is looked at first also sends first, two requests cannot take it from each other for ever.
"""

from __future__ import annotations

from engine.encoder_cache import EncoderItem
from engine.request import Request
from engine.scheduler.output import ModelRunnerOutput
from engine.scheduler.plan import StepPlan
from engine.scheduler.state import SchedulerState
from telemetry.vocabulary import EventKind


def is_on_its_way(
    state: SchedulerState, request: Request, item: EncoderItem, *, num_planned: int = 0
) -> bool:
    """Whether an item that is not cached is coming from elsewhere; sends for it if it can be had.

    Where the cache has no room it is not sent for: there is none to encode it here either.

    Args:
        num_planned: embeddings of items that the same grant encodes, which have no space yet.
    """
    cache, connector = state.encoder_cache, state.ec_connector
    if cache is None or connector is None:
        return False
    if cache.is_arriving(item.key):
        return True
    if item.key in request.keys_encoded_here or not connector.has(item.key):
        return False
    if not cache.expect(item, beside=num_planned):
        return False
    state.encoder_loads[item.key] = (request, item)
    state.encoder_loads_started.append(item)
    state.journal.encoder_load(EventKind.load_started, request, item)
    return True


def waits_for_items(
    state: SchedulerState,
    plan: StepPlan,
    request: Request,
    num_computed_tokens: int,
) -> bool:
    """Whether a waiting request would reach an item that is on its way; sends for all of them."""
    if state.ec_connector is None or state.encoder_cache is None:
        return False
    num_tokens = min(plan.capped(request.num_tokens - num_computed_tokens), plan.token_budget)
    end = num_computed_tokens + num_tokens + state.config.speculation.prefill_lookahead
    waits = False
    for item in request.encoder_items:
        reached = item.position < end and item.end > num_computed_tokens
        if reached and state.encoder_cache.length_of(item.key) is None:
            waits = is_on_its_way(state, request, item) or waits
    return waits


def receive_items(state: SchedulerState, runner_output: ModelRunnerOutput) -> None:
    """Takes in which encoder outputs have arrived, and which are not going to come."""
    for key in runner_output.finished_ec_recving:
        if (load := state.encoder_loads.pop(key, None)) is not None:
            assert state.encoder_cache is not None
            state.encoder_cache.arrived(key)
            state.journal.encoder_load(EventKind.load_finished, *load)
    for key in runner_output.failed_ec_recving:
        if (load := state.encoder_loads.pop(key, None)) is not None:
            assert state.encoder_cache is not None
            state.encoder_cache.give_up(key)
            state.journal.encoder_load(EventKind.load_failed, *load)
            for request in state.requests.values():
                if any(item.key == key for item in request.encoder_items):
                    request.keys_encoded_here.add(key)
