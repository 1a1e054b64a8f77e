"""The scans' array path: all rows of `DecodeRows` are served, and take their tokens, at once.

It stands in for the first part of the running scan, and of an update, where that part is nothing
but decodes: every row gets one token, those at a block boundary a block, and victims are chosen as
in the ordinary scan. What is not so simple (too small a budget, tokens that are missing, a row that
has to go itself in the middle of the list) dissolves the rows, and the ordinary way is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.request import Request
from engine.scheduler.async_output import reaches_its_end
from engine.scheduler.decode_order import DecodeOrder, Int32s
from engine.scheduler.decode_rows import DecodeRows
from engine.scheduler.output import DecodeBatch, ModelRunnerOutput, SchedulerOutput
from engine.scheduler.plan import Grant, StepPlan
from engine.scheduler.preemption import preempt
from engine.scheduler.queues import choose_victim
from engine.scheduler.state import SchedulerState
from engine.scheduler.stopping import stop_after
from telemetry.vocabulary import FinishReason, ZeroReason

# ------------------------------------------------------------------------------------ in a schedule


def serve_decodes(state: SchedulerState, plan: StepPlan) -> int | None:
    """Gives each row its token and its block.

    Returns:
        The place in the running list at which the running scan has ended; None if it goes on.
    """
    rows = state.decodes
    if rows.is_off:
        return None
    _gather_rows(state, plan)
    end: int | None = None
    new_blocks: dict[int, int] = {}
    needing = rows.that_need_a_block()
    if len(needing) > state.kv.pool.num_free:
        end, new_blocks = _grow_under_pressure(state, plan, needing)
    elif needing:
        requests = rows.order.requests
        blocks = state.kv.grow([requests[row] for row in needing])
        new_blocks = dict(zip(needing, blocks, strict=True))
    if end is not None and end < len(state.running):
        _unfold(state, plan, end, new_blocks)
    filling = rows.that_fill_a_block()
    if filling:
        state.kv.enter_filled(rows.flushed(filling))
    for request in rows.resting:
        plan.gave_nothing(request, 1, _why_it_rests(request))
    if rows.order.requests:
        plan.decodes = DecodeBatch(rows.order, rows.num_scheduled, rows.num_taken, new_blocks)
        plan.token_budget -= len(rows)
    return end


def _gather_rows(state: SchedulerState, plan: StepPlan) -> None:
    """Makes the rows those requests that can be served as rows in this step, and no others."""
    rows = state.decodes
    if plan.token_budget < len(rows) or not rows.can_go_on or not _all_still_rest(rows):
        rows.dissolve()
    if plan.token_budget > len(rows) and rows.num_in_front < len(state.running):
        _join_newcomers(state, plan)
    if rows.in_flight:
        rows.rest(rows.that_reach_their_end())


def _all_still_rest(rows: DecodeRows) -> bool:
    """Whether the last token of every resting request is still in flight."""
    if not rows.resting:
        return True
    return all(request.num_output_placeholders > 0 for request in rows.resting)


def _why_it_rests(request: Request) -> ZeroReason:
    """Returns which limit the token in flight reaches."""
    if reaches_its_end(request):
        return ZeroReason.max_tokens_in_flight
    return ZeroReason.max_model_len


def _join_newcomers(state: SchedulerState, plan: StepPlan) -> None:
    """Makes rows of those behind the rows that just decode by now, as far as the budget goes."""
    rows, running = state.decodes, state.running
    first = end = rows.num_in_front
    last = min(len(running), first + plan.token_budget - len(rows))
    in_flight = rows.in_flight if rows.order.requests else list(running[first].in_flight)
    while end < last and _just_decodes(state, running[end], in_flight):
        end += 1
    if end > first:
        rows.join(running[first:end])


def _just_decodes(state: SchedulerState, request: Request, in_flight: list[int]) -> bool:
    """Whether a running request has one token to do, and nothing about it is unusual.

    Args:
        in_flight: steps in flight that it must take part in, and no others.
    """
    num_settled = request.num_computed_tokens - request.num_output_placeholders
    return (
        request.num_tokens - num_settled == 1
        and request.times.first_token is not None
        and list(request.in_flight) == in_flight
        and not request.is_prefill_chunk
        and not request.is_catching_up
        and not request.draft_token_ids
        and not request.stale
        and num_settled >= request.high_water_mark
        and all(item.end < num_settled for item in request.encoder_items)
        and state.kv.is_in_step(request)
    )


def _grow_under_pressure(
    state: SchedulerState, plan: StepPlan, needing: list[int]
) -> tuple[int | None, dict[int, int]]:
    """Finds a block for each of some rows in turn, preempting until one is free.

    Returns:
        Where in the running list a row stood that had to go itself (None if none had to), and the
        new blocks by row, as rows are numbered then.
    """
    end: int | None = None
    grown: dict[Request, int] = {}
    requests = state.decodes.order.requests
    waiting = [requests[row] for row in needing]
    while end is None and waiting:
        first, num_free = waiting[0], state.kv.pool.num_free
        if num_free:
            served, waiting = waiting[:num_free], waiting[num_free:]
            state.journal.beneficiary_allocated(first)
            grown.update(zip(served, state.kv.grow(served), strict=True))
            continue
        victim = choose_victim(state.limits.policy, state.running)
        place = state.running.index(victim)
        preempt(state, victim, beneficiary=first, plan=plan, num_blocks_needed=1)
        end = place if victim is first else None
        waiting = [request for request in waiting if request.slot is not None]
    rows = enumerate(state.decodes.order.requests)
    return end, {row: grown[request] for row, request in rows if request in grown}


def _unfold(state: SchedulerState, plan: StepPlan, end: int, new_blocks: dict[int, int]) -> None:
    """Makes ordinary grants of what the rows before a place got; those behind it get nothing."""
    rows, resting = state.decodes, dict(state.decodes.resting)
    requests = rows.order.requests
    num_served = sum(request not in resting for request in state.running[:end])
    filling = [row for row in rows.that_fill_a_block() if row < num_served]
    state.kv.enter_filled(rows.flushed(filling))
    rows.dissolve()
    for request in state.running[:end]:
        if request in resting:
            plan.gave_nothing(request, 1, _why_it_rests(request))
    for row, request in enumerate(requests[:num_served]):
        block = new_blocks.get(row)
        plan.give(Grant(request, 1, 1, () if block is None else ([block],)))


# ------------------------------------------------------------------------------------- in an update


def take_rows(
    state: SchedulerState,
    output: SchedulerOutput,
    runner_output: ModelRunnerOutput,
    sampled: Mapping[str, list[int]],
) -> dict[Request, FinishReason]:
    """Gives each row its token of a step.

    Where not each row has one, all are ordinary requests from then on, without the token.

    Args:
        sampled: the tokens by request, unless the step's `decodes` are the rows of today.

    Returns:
        Those that have enough now, and why. They are no rows and do not run any more.
    """
    rows, batch = state.decodes, output.decodes
    if not rows.order.requests or output.step not in rows.in_flight:
        return {}
    token_ids = runner_output.decode_token_ids
    if token_ids is None or batch is None or batch.order is not rows.order:
        token_ids = _one_token_each(rows.order, sampled)
    if token_ids is None:
        rows.dissolve()
        return {}
    reasons = {}
    ending = rows.take(output.step, token_ids, state.journal.update_ts)
    if filled := rows.that_filled_a_block():
        state.kv.enter_filled(rows.flushed(filled))
    for row in ending:
        request = rows.settle_row(row)
        reason = stop_after(request, request.token_ids[-1], state.limits.max_model_len)
        if reason is not None:
            reasons[row] = request, reason
    if reasons:
        rows.remove(list(reasons))
    for request, _ in reasons.values():
        state.running.remove(request)
    return dict(reasons.values())


def _one_token_each(order: DecodeOrder, sampled: Mapping[str, list[int]]) -> Int32s | None:
    """Returns the rows' tokens as a column; None where a row has not just one."""
    token_ids: list[int] = []
    for name in order.request_ids:
        own = sampled.get(name)
        if own is None or len(own) != 1:
            return None
        token_ids += own
    return np.array(token_ids, dtype=np.int32)
