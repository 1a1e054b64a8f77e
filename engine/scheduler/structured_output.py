"""Structured output: what the bitmasks of a step need, and whether it is known yet.

A grammar says which tokens may come next; the runner is given that as one row of bits for each
position that it samples from. A row depends on all tokens before it. Under asynchronous scheduling
a step is decided before the last token of the step before is known: its bitmask can be filled only
once that token has been taken in, by the update of the step before.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.scheduler.plan import StepPlan


@dataclass(frozen=True, slots=True)
class BitmaskNeeds:
    """The requests of a step whose output a grammar constrains.

    Attributes:
        rows: bitmask rows of each, in scheduling order: one for its next token and one behind each
            draft. A request in mid-prefill samples nothing and has none.
        is_pending: whether a token that one of them needs is still on its way.
    """

    rows: dict[str, int]
    is_pending: bool


def bitmask_needs(plan: StepPlan) -> BitmaskNeeds | None:
    """Returns what a step needs, None where no grammar constrains anybody in it.

    To be asked before its requests' progress is counted.
    """
    rows: dict[str, int] = {}
    is_pending = False
    decodes = () if plan.decodes is None else plan.decodes.order.structured
    if decodes and plan.decodes is not None:
        rows = {request.request_id: 1 for request in decodes}
        is_pending = plan.decodes.has_steps_in_flight
    others = [grant for grant in plan.grants.values() if grant.request.grammar is not None]
    for grant in others:
        request = grant.request
        is_pending = is_pending or request.num_output_placeholders > 0
        known = request.num_tokens + request.num_output_placeholders
        if request.num_computed_tokens + grant.num_tokens >= known:
            rows[request.request_id] = 1 + len(grant.drafts)
    return BitmaskNeeds(rows, is_pending) if decodes or others else None
