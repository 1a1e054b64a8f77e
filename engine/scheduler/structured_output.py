"""Structured output: what the bitmasks of a step need, and whether it is known yet.

A grammar says which tokens may come next; the runner is given that as one row of bits for each
position that it samples from. A row depends on all tokens before it. Under asynchronous scheduling
a step is decided before the last token of the step before is known: its bitmask can be filled only
once that token has been taken in, by the update of the step before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.scheduler.plan import StepPlan


@dataclass(frozen=True, slots=True)
class BitmaskNeeds:
    """The requests of a step whose output a grammar constrains.

    Attributes:
        rows: bitmask rows of each, in scheduling order: one for its next token and one behind each
            draft. A request in mid-prefill samples nothing and has none.
        any_scheduled: whether there are such requests, in mid-prefill or not.
        is_pending: whether a token that one of them needs is still on its way.
    """

    rows: dict[str, int] = field(default_factory=dict)
    any_scheduled: bool = False
    is_pending: bool = False


def bitmask_needs(plan: StepPlan) -> BitmaskNeeds:
    """Returns what a step needs; to be asked before its requests' progress is counted."""
    rows: dict[str, int] = {}
    any_scheduled = is_pending = False
    for grant in plan.grants.values():
        request = grant.request
        if request.grammar is None:
            continue
        any_scheduled = True
        is_pending = is_pending or request.num_output_placeholders > 0
        known = request.num_tokens + request.num_output_placeholders
        if request.num_computed_tokens + grant.num_tokens >= known:
            rows[request.request_id] = 1 + len(grant.drafts)
    return BitmaskNeeds(rows, any_scheduled, is_pending)
