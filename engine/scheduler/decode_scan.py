"""The scans' array path: all rows of `DecodeRows` are served, and take their tokens, at once.

It stands in for the first part of the running scan, and of an update, where that part is nothing
but decodes: every row gets one token, those at a block boundary a block. Where blocks are short
under first come, first served, victims come off the end of the running list as they do in the
ordinary scan. Everything else (too small a budget, a victim by priority, a load that failed)
dissolves the rows, and the ordinary scan goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.request import Request, RequestStatus
from engine.scheduler.async_output import reaches_its_end
from engine.scheduler.decode_order import DecodeOrder, Int32s
from engine.scheduler.output import DecodeBatch, ModelRunnerOutput, SchedulerOutput
from engine.scheduler.plan import StepPlan
from engine.scheduler.preemption import preempt
from engine.scheduler.state import SchedulerState
from engine.scheduler.stopping import stop_after
from telemetry.vocabulary import FinishReason, ZeroReason

# ------------------------------------------------------------------------------------ in a schedule


def serve_decodes(state: SchedulerState, plan: StepPlan) -> None:
    """Gives each row its token and its block; dissolves the rows where that is not so simple."""
    rows = state.decodes
    if rows.is_off:
        return
    if plan.token_budget < len(rows) or not all(map(_still_rests, rows.resting)):
        rows.dissolve()
    if plan.token_budget > 0:
        _join_newcomers(state, plan)
    rows.rest(rows.that_reach_their_end())
    needing = rows.that_need_a_block()
    if len(needing) <= state.kv.pool.num_free:
        new_blocks = dict(zip(needing, _grow(state, needing), strict=True))
    elif state.limits.policy == "fcfs":
        new_blocks = _grow_under_pressure(state, plan, needing)
    else:
        rows.dissolve()
    for request in rows.resting:
        plan.gave_nothing(request, 1, _why_it_rests(request))
    if not rows.order.requests:
        return
    state.kv.enter_filled(rows.flushed(rows.that_fill_a_block()))
    plan.decodes = DecodeBatch(rows.order, rows.num_scheduled, rows.num_taken, new_blocks)
    plan.token_budget -= len(rows)


def _still_rests(request: Request) -> bool:
    """Whether the last token of a resting request is still in flight."""
    return request.num_output_placeholders > 0


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
    if first == last:
        return
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
        and request.grammar is None
        and num_settled >= request.high_water_mark
        and all(item.end <= num_settled for item in request.encoder_items)
        and state.kv.is_in_step(request)
    )


def _grow(state: SchedulerState, rows: list[int]) -> list[int]:
    requests = state.decodes.order.requests
    return state.kv.grow([requests[row] for row in rows])


def _grow_under_pressure(
    state: SchedulerState, plan: StepPlan, needing: list[int]
) -> dict[int, int]:
    """Finds a block for each row in turn; returns them by row. The last in the list have to go."""
    new_blocks: dict[int, int] = {}
    for row in needing:
        if row >= len(state.decodes):
            break
        request = state.decodes.order.requests[row]
        while state.kv.pool.num_free == 0:
            preempt(state, state.running[-1], beneficiary=request, plan=plan, num_blocks_needed=1)
            if request.status is RequestStatus.PREEMPTED:
                return new_blocks
        state.journal.beneficiary_allocated(request)
        (new_blocks[row],) = state.kv.grow([request])
    return new_blocks


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
    for row in rows.take(output.step, token_ids, state.journal.update_ts):
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
