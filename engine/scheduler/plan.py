"""One step while it is being decided: what is left of the budget, who got what, who was thrown out.

A plan lives from the start of `schedule()` to its end. It does arithmetic on itself; the scheduler
decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.kv_cache import BlockIds
from engine.request import Request
from engine.scheduler.output import DecodeBatch
from telemetry.vocabulary import StopReason, ZeroReason


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request was given in this step.

    `num_wanted` is what it could have used; `new_blocks` were added to its table (its whole table
    at an admission); `drafts` are the draft tokens and placeholders among its tokens,
    `encoder_items` the indices of the items that it encodes.
    """

    request: Request
    num_wanted: int
    num_tokens: int
    new_blocks: BlockIds
    drafts: list[int] = field(default_factory=list)
    encoder_items: list[int] = field(default_factory=list)

    @property
    def num_embeds(self) -> int:
        """Encoder embeddings that the grant computes."""
        if not self.encoder_items:
            return 0
        return sum(self.request.encoder_items[index].num_embeds for index in self.encoder_items)


@dataclass(frozen=True, slots=True)
class AdmissionStop:
    """Why admission ended, who was the head then, and the blocks it would have needed."""

    reason: StopReason
    head: Request | None = None
    num_blocks_needed: int | None = None


@dataclass(slots=True)
class StepPlan:
    """The working state of one step.

    Invariants:
        `token_budget` is the step's budget less the tokens of all grants and decodes.
    """

    step: int
    started_ts: int
    full_budget: int
    token_budget: int
    token_cap: int | None
    """Most tokens that one request may get; None where there is no such limit."""
    victim_not_releasable: bool = False
    """The running scan ended because the victim's blocks are in use by a step in flight."""
    encoder_budget: int = 0
    defers_prefills: bool = False
    """Whether prefills are throttled in this step."""
    is_throttled: bool | None = None
    """The same; None where nobody asked for it."""
    decodes: DecodeBatch | None = None
    """The first of the running requests, with one token each, where the array path served them."""
    grants: dict[str, Grant] = field(default_factory=dict)
    """Behind them, in scheduling order: running requests first, then admissions."""
    admitted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    num_hit_tokens: dict[str, int | None] = field(default_factory=dict)
    num_hit_tokens_full_group: dict[str, int] = field(default_factory=dict)
    """What full attention alone had of an admission's prefix, on a model with other groups."""
    num_external_tokens: dict[str, int] = field(default_factory=dict)
    loads_started: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    preempted: list[Request] = field(default_factory=list)
    zeros: list[tuple[Request, int, ZeroReason]] = field(default_factory=list)
    stop: AdmissionStop = AdmissionStop(StopReason.queue_empty)

    def capped(self, num_tokens: int) -> int:
        """Returns how many of the wanted tokens the per-request cap leaves."""
        return num_tokens if self.token_cap is None else min(num_tokens, self.token_cap)

    def give(self, grant: Grant) -> None:
        """Takes a grant's tokens off the budget."""
        self.grants[grant.request.request_id] = grant
        self.token_budget -= grant.num_tokens
        self.encoder_budget -= grant.num_embeds

    def withdraw(self, request: Request) -> Grant | None:
        """Takes back what a victim had been given in this step; None where it had nothing."""
        self.zeros = [zero for zero in self.zeros if zero[0] is not request]
        grant = self.grants.pop(request.request_id, None)
        if grant is not None:
            self.token_budget += grant.num_tokens
            self.encoder_budget += grant.num_embeds
        return grant

    def adapters(self) -> set[str]:
        """Returns the adapters of the requests that were given tokens."""
        named = {a for grant in self.grants.values() if (a := grant.request.adapter) is not None}
        return named if self.decodes is None else named | self.decodes.order.adapters

    def gave_nothing(self, request: Request, num_wanted: int, reason: ZeroReason) -> None:
        """Notes that a running request was given none; with drafts in a pipeline it wants none."""
        self.zeros.append((request, max(num_wanted, 0), reason))
