"""The input budget: places in the model's input, which scheduled requests and drafters share.

A step's token budget counts tokens. A parallel drafter takes `draft_slots_per_request` places more
for every scheduled request, and tokens and slots together have to fit into
`max_num_batched_tokens`. Without such slots the token budget always runs out first.
"""

from __future__ import annotations

from engine.scheduler.plan import StepPlan
from engine.scheduler.state import SchedulerState


def room_for_another(state: SchedulerState, plan: StepPlan) -> int:
    """Returns the most tokens that one more request can be given; 0 or less if none."""
    slots = state.config.speculation.draft_slots_per_request
    if slots == 0:
        return plan.token_budget
    used = plan.full_budget - plan.token_budget + slots * len(plan.grants)
    return min(plan.token_budget, state.limits.max_num_batched_tokens - used - slots)
