"""Preemptions: who lost its blocks, for whom, by which rule, and what that cost.

All of it is read before vLLM takes the victim's blocks, since it zeroes the victim's progress
there; how many blocks came free is known right after.
"""

from __future__ import annotations

from typing import Any

from telemetry.records import RequestPreempted
from telemetry.sources.vllm.blocks import Blocks
from telemetry.sources.vllm.lives import Life, Lives
from telemetry.sources.vllm.running import RunningScan, Wanting
from telemetry.sources.vllm.steps import Steps
from telemetry.vocabulary import PreemptionCause, VictimRule


class Preemptions:
    """Takes down each preemption, and whether it bought its beneficiary what that wanted."""

    def __init__(
        self, scheduler: Any, steps: Steps, lives: Lives, running: RunningScan, blocks: Blocks
    ) -> None:
        self.in_step: set[str] = set()
        """Requests preempted by the step being decided."""
        self._is_priority = scheduler.policy.value == "priority"
        self._scheduler = scheduler
        self._steps = steps
        self._lives = lives
        self._running = running
        self._blocks = blocks
        self._unsettled: list[RequestPreempted] = []
        self._event: RequestPreempted | None = None
        self._num_deferred_before = 0

    def begin_step(self) -> None:
        """A step begins."""
        self.in_step.clear()
        self._unsettled.clear()

    def about_to_preempt(self, victim: Any) -> None:
        """A request is about to lose its blocks and its progress."""
        steps = self._steps
        steps.num_preemptions += 1
        self._event = None
        is_in_step = steps.is_deciding and steps.current is not None
        if is_in_step:
            self.in_step.add(victim.request_id)
        life = self._lives.of(victim)
        if life is None:
            return
        event = self._loss_of(life, victim, is_in_step)
        wanting = self._running.wanting if is_in_step else None
        if wanting is not None:
            self._name_beneficiary(event, wanting)
            self._withdraw(event, victim)
        self._event = event
        self._num_deferred_before = self._blocks.num_deferred
        life.preempted_ts = event.ts
        life.high_water = max(life.high_water, victim.num_computed_tokens)
        self._lives.stops(victim.request_id)

    def has_preempted(self) -> None:
        """The blocks are gone."""
        event, self._event = self._event, None
        if event is None:
            return
        event.num_blocks_freed = self._blocks.num_free - (event.num_blocks_free_before or 0)
        event.num_blocks_deferred = self._blocks.num_deferred - self._num_deferred_before
        if event.beneficiary is not None:
            self._unsettled.append(event)
        self._steps.tell(event)

    def beneficiary_allocated(self, request: Any) -> None:
        """A request that wanted blocks has got them: what was evicted for it was not in vain."""
        life = self._lives.of(request)
        for event in self._unsettled:
            if life is not None and event.beneficiary == life.number:
                event.beneficiary_allocated = 1
        self._unsettled.clear()

    def _loss_of(self, life: Life, victim: Any, is_in_step: bool) -> RequestPreempted:
        """Returns the event as far as it is about the victim alone."""
        beneficiary = None
        if is_in_step and self._running.wanting is not None:
            beneficiary = self._running.wanting.request
        return RequestPreempted(
            step=self._steps.step,
            ts=self._steps.clock(),
            request=life.number,
            cause=self._cause(victim, beneficiary, is_in_step),
            victim_rule=self._rule(victim, beneficiary, is_in_step),
            victim_priority=victim.priority,
            num_blocks_free_before=self._blocks.num_free,
            num_computed_tokens_lost=victim.num_computed_tokens,
            num_in_flight_tokens=victim.num_in_flight_tokens,
            num_output_tokens_kept=victim.num_output_tokens,
            num_withdrawn_tokens=0,
            num_withdrawn_embeds=0,
            num_withdrawn_drafts=0,
            was_prefill=int(victim.num_computed_tokens < victim.num_tokens - 1),
            nth=victim.num_preemptions + 1,
        )

    def _name_beneficiary(self, event: RequestPreempted, wanting: Wanting) -> None:
        """Says for whom the victim goes, and what that one lacks; it has not got it yet."""
        life = self._lives.of(wanting.request)
        event.beneficiary = None if life is None else life.number
        event.beneficiary_allocated = 0
        event.beneficiary_priority = wanting.request.priority
        event.num_blocks_needed = wanting.num_blocks_needed

    def _withdraw(self, event: RequestPreempted, victim: Any) -> None:
        """Notes what the step had given the victim already, and takes back."""
        num_tokens = self._running.granted.pop(victim.request_id, 0)
        if not num_tokens:
            return
        event.num_withdrawn_tokens = num_tokens
        known = victim.num_tokens + victim.num_output_placeholders
        event.num_withdrawn_drafts = max(0, victim.num_computed_tokens + num_tokens - known)
        event.num_withdrawn_embeds = self._running.embeds_granted.pop(victim.request_id, 0)

    def _cause(self, victim: Any, beneficiary: Any, is_in_step: bool) -> PreemptionCause | None:
        if not is_in_step:
            return PreemptionCause.cache_reset
        if beneficiary is None:
            return None
        if self._is_priority and victim.priority > beneficiary.priority:
            return PreemptionCause.priority
        return PreemptionCause.kv_full

    def _rule(self, victim: Any, beneficiary: Any, is_in_step: bool) -> VictimRule:
        if not is_in_step:
            return VictimRule.all
        if victim is beneficiary:
            return VictimRule.itself
        return VictimRule.lowest_priority if self._is_priority else VictimRule.running_tail


def admitted_again(life: Life, now: int) -> None:
    """A request runs again: its time out ends here."""
    if life.preempted_ts is not None:
        life.preempted_ns += now - life.preempted_ts
        life.preempted_ts = None
