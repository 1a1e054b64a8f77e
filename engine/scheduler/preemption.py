"""Preemption: a running request is thrown out so that another can go on."""

from __future__ import annotations

from engine.request import Request, RequestStatus, StaleOutput
from engine.scheduler.async_output import make_stale
from engine.scheduler.encoder_inputs import let_go_of_all
from engine.scheduler.kv_loads import defer_free, must_wait_for_step
from engine.scheduler.plan import Grant, StepPlan
from engine.scheduler.state import SchedulerState


def preempt(
    state: SchedulerState,
    victim: Request,
    *,
    beneficiary: Request | None,
    plan: StepPlan | None,
    num_blocks_needed: int | None = None,
) -> None:
    """Takes blocks and progress from a running request; it keeps its outputs, and waits again.

    What it was given in this step goes back to the budget. `beneficiary` and `plan` are None for a
    reset of the prefix cache.
    """
    if victim.slot is not None:
        withdrawn = _take_off_rows(state, victim, beneficiary, plan)
    else:
        withdrawn = plan.withdraw(victim) if plan is not None else None
    state.running.remove(victim)
    state.decodes.resting.pop(victim, None)
    free_before = state.kv.pool.num_free
    num_freed = num_deferred = 0
    if must_wait_for_step(state, victim):
        num_deferred = state.kv.num_blocks_held(victim)
        defer_free(state, victim)
    else:
        num_freed = state.kv.release(victim, uncache_from=victim.num_computed_tokens)
    _forget_encoder_items(state, victim, withdrawn)
    state.journal.preempted(
        victim,
        beneficiary,
        num_blocks_needed=num_blocks_needed,
        num_blocks_free_before=free_before,
        num_blocks_freed=num_freed,
        num_blocks_deferred=num_deferred,
        withdrawn=withdrawn,
    )
    victim.high_water_mark = max(victim.high_water_mark, victim.num_computed_tokens)
    victim.num_computed_tokens = 0
    make_stale(victim, _fate_of_output(state, beneficiary))
    victim.draft_token_ids = []
    state.reserving.discard(victim)
    victim.num_preemptions += 1
    victim.status = RequestStatus.PREEMPTED
    state.num_preemptions += 1
    state.preempted_ids.add(victim.request_id)
    state.waiting.put_back(victim)
    if plan is not None:
        plan.preempted.append(victim)


def _take_off_rows(
    state: SchedulerState, victim: Request, beneficiary: Request | None, plan: StepPlan | None
) -> Grant | None:
    """Takes a victim off the array path; returns its grant of this step, if it has been served.

    While rows are being served, that is so if it stands before the beneficiary. A block that its
    newest token fills has been computed where that token is in flight already: it stays a hit.
    """
    rows = state.decodes
    row = rows.row_of(victim)
    was_served = plan is not None and plan.decodes is not None
    if beneficiary is not None and beneficiary.slot is not None:
        was_served = row < rows.row_of(beneficiary)
        if was_served and row in rows.that_fill_a_block():
            state.kv.enter_filled(rows.flushed([row]))
    rows.remove([row])
    if plan is not None and plan.decodes is not None:
        plan.decodes = plan.decodes.without(row, rows.order) if len(rows) else None
        plan.token_budget += 1
    return Grant(victim, 1, 1, ()) if was_served else None


def _fate_of_output(state: SchedulerState, beneficiary: Request | None) -> StaleOutput:
    """Returns what becomes of a token on its way: a producer would send KV it no longer has."""
    connector = state.config.kv_connector
    sends = connector is not None and connector.role != "kv_consumer"
    return StaleOutput.DROPPED if beneficiary is None or sends else StaleOutput.DELIVERED


def _forget_encoder_items(state: SchedulerState, victim: Request, withdrawn: Grant | None) -> None:
    """Drops the victim's encoder references, and entries that its withdrawn grant never filled."""
    if state.encoder_cache is None:
        return
    let_go_of_all(state.encoder_cache, victim)
    for index in withdrawn.encoder_items if withdrawn is not None else ():
        state.encoder_cache.withdraw(victim.encoder_items[index].key)
