"""What a journal of one scheduler is made of, each part with an idea of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from telemetry.content_hashes import ContentHashes
from telemetry.recorder import Recorder
from telemetry.records import Event
from telemetry.sources.vllm.allocations import AllocationWatch
from telemetry.sources.vllm.arrivals import content_hashes, extends_ids, prefix_hashes
from telemetry.sources.vllm.block_needs import BlockNeeds
from telemetry.sources.vllm.blocks import Blocks
from telemetry.sources.vllm.compatibility import Features
from telemetry.sources.vllm.dense_rows import DenseRows
from telemetry.sources.vllm.encoder import EncoderStops
from telemetry.sources.vllm.guard import Guard
from telemetry.sources.vllm.keys import SaltedKeys
from telemetry.sources.vllm.lives import Life, Lives
from telemetry.sources.vllm.loads import Loads
from telemetry.sources.vllm.preemptions import Preemptions
from telemetry.sources.vllm.running import RunningScan
from telemetry.sources.vllm.step_rows import StepRows
from telemetry.sources.vllm.steps import Steps
from telemetry.sources.vllm.stop_reasons import StopReasons
from telemetry.sources.vllm.token_times import TokenTimes
from telemetry.sources.vllm.waiting import WaitingScan
from telemetry.vocabulary import EventKind, FinishReason, SkipReason


class Parts:
    """The parts, and how all hooks tell an event: now, or after an update's tokens."""

    def __init__(
        self, scheduler: Any, recorder: Recorder, clock: Callable[[], int], features: Features
    ) -> None:
        from vllm.v1.core.sched.interface import PauseState
        from vllm.v1.request import RequestStatus

        self.scheduler = scheduler
        self.recorder = recorder
        self.clock = clock
        self.features = features
        self.statuses: Any = RequestStatus
        self.extends_ids = extends_ids(os.environ)
        self.keys = SaltedKeys()
        self.contents: ContentHashes | None = None
        if features.content_hashes:
            self.contents = ContentHashes(scheduler.hash_block_size)
        self.lives = Lives()
        self.steps = Steps(recorder, clock, self.is_busy)
        self.steps.counts_preemptions = features.preemptions
        self.blocks = Blocks(scheduler)
        self.needs = BlockNeeds(scheduler, RequestStatus)
        self.allocations: AllocationWatch | None = None
        self.encoder = EncoderStops(scheduler)
        self.running = RunningScan(scheduler, PauseState, self.needs, self.encoder)
        self.waiting = WaitingScan(scheduler, self.lives, RequestStatus, self.skipped)
        self.stop_reasons = StopReasons(scheduler, self.waiting, self.running, self.encoder)
        self.preemptions = Preemptions(scheduler, self.steps, self.lives, self.running, self.blocks)
        self.loads = Loads(scheduler, self.steps, self.lives, self.blocks, RequestStatus)
        self.times = TokenTimes(self.got_first)
        self.rows = StepRows(scheduler, self.lives, self.running, self.needs)
        self.dense = DenseRows(scheduler, self.lives, self.blocks if features.kv_blocks else None)
        self.update_ts = 0
        """When the update that is under way began; 0 between updates."""
        self._late: list[Callable[[], None]] = []

    def listen_to_allocations(self, hook: Callable[..., None], guard: Guard) -> None:
        """Has `hook` hear which requests got blocks and which did not, as far as that matters."""
        self.allocations = AllocationWatch(
            self.scheduler, self.lives, self.statuses.RUNNING, self.running, hook, guard
        )

    def is_busy(self) -> bool:
        """Returns whether any request runs or waits."""
        scheduler = self.scheduler
        return bool(scheduler.running or scheduler.waiting or scheduler.kv_holding_waiting)

    # ------------------------------------------------------------------------------ telling

    def tell(self, event: Event) -> None:
        """Tells an event; inside an update after its tokens, which come first."""
        if self.update_ts:
            self._late.append(lambda: self.steps.tell(event))
        else:
            self.steps.tell(event)

    def when_tokens_are_told(self, act: Callable[[], None]) -> None:
        """Does something now; inside an update once its tokens have been told."""
        if self.update_ts:
            self._late.append(act)
        else:
            act()

    def tell_late(self) -> None:
        """Does what was put off until the tokens of the update were told."""
        late, self._late = self._late, []
        for act in late:
            act()

    def drop_update(self) -> None:
        """Forgets the update under way, of which something could not be told."""
        self.update_ts = 0
        self._late.clear()

    def note(
        self,
        kind: EventKind,
        life: Life | None,
        reason: SkipReason | FinishReason | None = None,
        *,
        ts: int | None = None,
    ) -> Event:
        """Returns an event without numbers of its own, of a request or of the engine."""
        return Event(
            kind=kind,
            step=self.steps.step,
            ts=self.clock() if ts is None else ts,
            request=None if life is None else life.number,
            reason=reason,
            num_steps_in_flight=self.steps.num_in_flight,
        )

    def skipped(self, life: Life, reason: SkipReason) -> None:
        """A request is set aside for a reason that it did not have before."""
        if reason is SkipReason.grammar_failed and self.features.grammar:
            event = self.note(EventKind.grammar_failed, life, reason)
            structured = life.request.structured_output_request
            event.text = type(structured.grammar).__name__
            self.tell(event)
        self.tell(self.note(EventKind.skipped, life, reason))

    def got_first(self, life: Life, ts: int) -> None:
        """A request got its first token, or its first since it was preempted."""
        is_first = life.first_token_ts is None
        kind = EventKind.first_token if is_first else EventKind.caught_up
        self.steps.tell(self.note(kind, life, ts=ts))

    def hashes_of(self, life: Life) -> bytes | None:
        """Returns the hashes of a request's full blocks, for the collector to compare."""
        if not self.features.prefix_hashes:
            return None
        return prefix_hashes(life, self.keys, self.scheduler.hash_block_size)

    def contents_of(self, life: Life) -> bytes | None:
        """Returns hashes of what is in a prompt's full blocks, for the collector to compare."""
        return None if self.contents is None else content_hashes(life.request, self.contents)
