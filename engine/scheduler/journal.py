"""What the scheduler writes down about itself.

The scheduler calls the journal at each decision; the journal turns that into events of the step
that is open. It reads the scheduler and changes nothing in it but a request's times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from engine.request import Request, RequestStatus
from engine.scheduler.load_journal import LoadJournal
from engine.scheduler.plan import Grant, StepPlan
from telemetry.recorder import Recorder
from telemetry.records import (
    EncoderItemScheduled,
    Event,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    TurnFinished,
)
from telemetry.vocabulary import (
    EventKind,
    FinishReason,
    PreemptionCause,
    SkipReason,
    VictimRule,
)

if TYPE_CHECKING:
    from engine.scheduler.state import SchedulerState


class StepJournal(LoadJournal):
    """Takes each decision down as an event of the step it belongs to."""

    def __init__(
        self, recorder: Recorder, clock: Callable[[], int], scheduler: SchedulerState
    ) -> None:
        super().__init__(recorder, clock, scheduler)
        self._unsettled: list[RequestPreempted] = []
        self._was_throttled = False

    def begin_step(self, plan: StepPlan) -> None:
        """A step begins; it is told where prefills begin to be held back."""
        super().begin_step(plan)
        if plan.defers_prefills and not self._was_throttled:
            self._tell(EventKind.throttled)
        self._was_throttled = plan.defers_prefills

    def scheduled(self, plan: StepPlan) -> None:
        """The step is decided; nobody's progress has been advanced yet."""
        if self._is_off:
            return
        self._unsettled.clear()
        for grant in plan.grants.values():
            self._encoded(grant)
        super().scheduled(plan)

    def skipped(self, request: Request, reason: SkipReason) -> None:
        """A request is set aside for a reason that it did not have before."""
        self._note(EventKind.skipped, request, reason)
        self.publish_between_steps()

    def admitted(self, request: Request, plan: StepPlan) -> None:
        """A request has joined the running ones."""
        now = self._clock()
        times = request.times
        resumed = request.is_catching_up
        num_hit_tokens = plan.num_hit_tokens[request.request_id]
        num_external_tokens = plan.num_external_tokens[request.request_id]
        loaded = self._take_loaded(request) if num_hit_tokens is None else None
        if loaded is not None:
            num_hit_tokens, num_external_tokens = loaded
        if times.admitted is None:
            times.admitted = now
        if times.preempted is not None:
            times.preempted_ns += now - times.preempted
            times.preempted = None
        if self._is_off:
            return
        self._events.append(
            RequestAdmitted(
                kind=EventKind.resumed if resumed else EventKind.admitted,
                step=self._step,
                ts=now,
                request=request.number,
                num_hit_tokens=num_hit_tokens,
                num_hit_tokens_full_group=plan.num_hit_tokens_full_group.get(request.request_id),
                num_external_tokens=num_external_tokens,
                is_async=int(loaded is not None),
                num_scheduled_tokens=plan.grants[request.request_id].num_tokens,
            )
        )

    def preempted(
        self,
        victim: Request,
        beneficiary: Request | None,
        *,
        num_blocks_needed: int | None,
        num_blocks_free_before: int,
        num_blocks_freed: int,
        num_blocks_deferred: int,
        withdrawn: Grant | None,
    ) -> None:
        """A request has lost its blocks; its progress has not been zeroed yet."""
        now = self._clock()
        victim.times.preempted = now
        if self._is_off:
            return
        event = RequestPreempted(
            step=self._step,
            ts=now,
            request=victim.number,
            cause=cause_of(victim, beneficiary, self._scheduler.config.scheduler.policy),
            victim_rule=_victim_rule(victim, beneficiary, self._scheduler.config.scheduler.policy),
            beneficiary=None if beneficiary is None else beneficiary.number,
            beneficiary_allocated=None if beneficiary is None else 0,
            victim_priority=victim.priority,
            beneficiary_priority=None if beneficiary is None else beneficiary.priority,
            num_blocks_needed=num_blocks_needed,
            num_blocks_free_before=num_blocks_free_before,
            num_blocks_freed=num_blocks_freed,
            num_blocks_deferred=num_blocks_deferred,
            num_computed_tokens_lost=victim.num_computed_tokens,
            num_in_flight_tokens=victim.num_in_flight_tokens,
            num_output_tokens_kept=victim.num_output_tokens,
            num_withdrawn_tokens=0 if withdrawn is None else withdrawn.num_tokens,
            num_withdrawn_embeds=0 if withdrawn is None else withdrawn.num_embeds,
            num_withdrawn_drafts=0 if withdrawn is None else len(withdrawn.drafts),
            was_prefill=int(victim.num_computed_tokens < victim.num_tokens - 1),
            nth=victim.num_preemptions + 1,
        )
        self._events.append(event)
        self._unsettled.append(event)

    def beneficiary_allocated(self, beneficiary: Request) -> None:
        """A request got its blocks: what was evicted for it was not evicted in vain."""
        for event in self._unsettled:
            if event.beneficiary == beneficiary.number:
                event.beneficiary_allocated = 1
        self._unsettled.clear()

    def _encoded(self, grant: Grant) -> None:
        """A request's encoder items run in this step."""
        for index in grant.encoder_items:
            item = grant.request.encoder_items[index]
            self._events.append(
                EncoderItemScheduled(
                    step=self._step,
                    ts=self._clock(),
                    request=grant.request.number,
                    item_index=index,
                    position=item.position,
                    num_embeds=item.num_embeds,
                    item_key=self._salted(item.key),
                )
            )

    def evicted(self, keys: Iterable[str]) -> None:
        """Encoder outputs have been evicted."""
        for key in keys:
            event = Event(kind=EventKind.item_evicted, step=self._step, ts=self._clock())
            event.text = self._salted(key)
            self._events.append(event)

    def verified(self, request: Request, num_drafts: int, num_accepted: int) -> None:
        """A request's drafts have been compared with what the model says."""
        request.drafts_placed.append(num_drafts)
        request.drafts_accepted.append(num_accepted)
        if self._current is not None:
            self._current.accepted[request.number] = num_accepted

    def turn_finished(self, request: Request, reason: FinishReason) -> None:
        """A session's turn is over; nothing of it has been dropped yet."""
        self._events.append(
            TurnFinished(
                step=self._step,
                ts=self.update_ts,
                request=request.number,
                reason=reason,
                num_tokens=request.num_output_tokens,
            )
        )

    def got_tokens(self, request: Request) -> None:
        """A request has been given output tokens."""
        now = self.update_ts
        times = request.times
        if times.first_token is None:
            times.first_token = now
            self._note(EventKind.first_token, request, ts=now)
        elif request.is_catching_up:
            self._note(EventKind.caught_up, request, ts=now)
        if times.last_token is not None:
            times.max_itl_ns = max(times.max_itl_ns or 0, now - times.last_token)
        times.last_token = now
        request.is_catching_up = False

    def finished(self, request: Request, reason: FinishReason) -> None:
        """A request is about to end."""
        self._forget(request)
        if self._is_off:
            return
        now = self.update_ts or self._clock()
        times = request.times
        preempted_ns = times.preempted_ns
        if request.status is RequestStatus.PREEMPTED and times.preempted is not None:
            preempted_ns += now - times.preempted
        decode_ns = _between(times.first_token, times.last_token)
        gaps = request.num_output_tokens - 1
        self._events.append(
            RequestFinished(
                step=self._step,
                ts=now,
                request=request.number,
                reason=reason,
                num_steps_in_flight=self._num_in_flight,
                num_output_tokens=request.num_output_tokens,
                num_computed_tokens=request.num_computed_tokens,
                num_preemptions=request.num_preemptions,
                queue_ns=_between(times.arrived, times.admitted),
                prefill_ns=_between(times.admitted, times.first_token),
                decode_ns=decode_ns,
                preempted_ns=preempted_ns,
                mean_itl_ns=decode_ns // gaps if decode_ns is not None and gaps > 0 else None,
                max_itl_ns=times.max_itl_ns,
                drafts_placed=request.drafts_placed or None,
                drafts_accepted=request.drafts_accepted or None,
                prefix_hashes=self._prefix_hashes(request),
            )
        )


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


def cause_of(victim: Request, beneficiary: Request | None, policy: str) -> PreemptionCause:
    """Returns why a request is preempted: for `beneficiary`, or for a reset of the cache (None)."""
    if beneficiary is None:
        return PreemptionCause.cache_reset
    if policy == "priority" and victim.priority > beneficiary.priority:
        return PreemptionCause.priority
    return PreemptionCause.kv_full


def _victim_rule(victim: Request, beneficiary: Request | None, policy: str) -> VictimRule:
    if beneficiary is None:
        return VictimRule.all
    if victim is beneficiary:
        return VictimRule.itself
    return VictimRule.lowest_priority if policy == "priority" else VictimRule.running_tail
