"""Preemption: a running request is thrown out so that another can go on."""

from __future__ import annotations

from engine.request import Request, RequestStatus
from engine.scheduler.plan import StepPlan
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
    withdrawn = plan.withdraw(victim) if plan is not None else None
    state.running.remove(victim)
    free_before = state.kv.pool.num_free
    num_freed = state.kv.release(victim, uncache_from=victim.num_computed_tokens)
    state.journal.preempted(
        victim,
        beneficiary,
        num_blocks_needed=num_blocks_needed,
        num_blocks_free_before=free_before,
        num_blocks_freed=num_freed,
        withdrawn=withdrawn,
    )
    victim.high_water_mark = max(victim.high_water_mark, victim.num_computed_tokens)
    victim.num_computed_tokens = 0
    victim.draft_token_ids = []
    victim.num_preemptions += 1
    victim.status = RequestStatus.PREEMPTED
    state.num_preemptions += 1
    state.preempted_ids.add(victim.request_id)
    state.waiting.put_back(victim)
    if plan is not None:
        plan.preempted.append(victim)
