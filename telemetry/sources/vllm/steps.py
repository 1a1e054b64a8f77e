"""Steps on their way from `schedule()` to `update_from_output()`, and the events told with them.

With asynchronous scheduling a step is scheduled before the one before it is taken in, so an update
finds its step by the very object that `schedule()` returned. A step is handed to the recorder with
all its events once it is taken in; events between steps are handed over at once. Steps that
scheduled nothing, told nothing and are equal to the one before become one row with a count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from telemetry.recorder import Recorder
from telemetry.records import Event, StepRequests, StepRow
from telemetry.vocabulary import Phase

MAX_OPEN_STEPS = 64
"""Steps that wait for their update; of more, the oldest is told without it."""
REPEAT_NS = 1_000_000_000
"""Longest stretch of equal empty steps that is told in one row."""

_STATE = (
    *("stop_reason", "head_request", "head_blocks_needed"),
    *("num_running", "num_waiting", "num_skipped_waiting", "num_steps_in_flight", "throttled"),
    *("num_blocks_free_unhashed", "num_blocks_free_cached"),
)
"""What two empty steps have in common to be told in one row."""


@dataclass(slots=True)
class OpenStep:
    """A step that is being decided, or has not been taken in."""

    step: int
    ts: int
    events: list[Event] = field(default_factory=list)
    row: StepRow | None = None
    requests: StepRequests | None = None
    output: Any = None
    """vLLM's own output of the step; held, so that no other object can be mistaken for it."""


class Steps:
    """Holds open steps and hands them over.

    Invariants:
        `current` is the step that events belong to: the one being decided or taken in, else the
        newest one in flight, else None.
    """

    def __init__(
        self, recorder: Recorder, clock: Callable[[], int], is_busy: Callable[[], bool]
    ) -> None:
        self.clock = clock
        self.current: OpenStep | None = None
        self.is_deciding = False
        """Whether vLLM is inside `schedule()` or `update_from_output()`."""
        self.counts_preemptions = True
        self.num_preemptions = 0
        """The scheduler's own count: calls of its `_preempt_request`."""
        self._recorder = recorder
        self._is_busy = is_busy
        self._next = 0
        self._open: dict[int, OpenStep] = {}
        self._between: list[Event] = []
        self._held: OpenStep | None = None

    # ------------------------------------------------------------------------------ the step

    def begin(self) -> OpenStep:
        """A step begins; what was not handed over before it is its own."""
        step = OpenStep(self._next, self.clock(), self._between)
        self._between = []
        self._next += 1
        self.current, self.is_deciding = step, True
        self._recorder.enter_phase(step.step, Phase.schedule)
        return step

    def decided(self, output: Any) -> None:
        """The current step is decided and on its way to the model."""
        step, self.is_deciding = self.at_hand, False
        if step is None or step.row is None:
            return
        step.output = output
        self._open[id(output)] = step
        step.row.num_steps_in_flight = len(self._open)
        step.row.schedule_ns = self.clock() - step.ts
        if len(self._open) > MAX_OPEN_STEPS:
            self._hand_over(self._open.pop(next(iter(self._open))))
        self._recorder.enter_phase(step.step, Phase.forward)

    def begin_update(self, output: Any) -> OpenStep | None:
        """A step is about to be taken in; returns it, or None where it is not known."""
        step = self._open.get(id(output))
        if step is not None:
            self.current, self.is_deciding = step, True
            self._recorder.enter_phase(step.step, Phase.update)
        return step

    def finish(self, output: Any, update_ts: int) -> None:
        """A step has been taken in: hands it over unless it can be counted."""
        step, self.is_deciding = self._open.pop(id(output), None), False
        if step is not None and step.row is not None:
            row = step.row
            if self.counts_preemptions:
                row.num_preemptions_total = self.num_preemptions
                self._recorder.count_preemptions(self.num_preemptions)
            row.updated_ts = self.clock()
            row.update_ns = row.updated_ts - update_ts
            if self._held is None or not self._repeats(self._held, step, row):
                self._hand_over_or_hold(step, row)
        self.current = next(reversed(self._open.values()), None)
        self._enter_rest()

    def abandon(self) -> None:
        """Something of ours failed: the step at hand is dropped, and those in flight stay."""
        step, self.is_deciding = self.current, False
        if step is not None and step.output is not None:
            self._open.pop(id(step.output), None)
        self.current = next(reversed(self._open.values()), None)

    @property
    def at_hand(self) -> OpenStep | None:
        """The step that vLLM decides or takes in at this moment, if we have followed it so far."""
        return self.current if self.is_deciding else None

    # ------------------------------------------------------------------------------ events

    @property
    def step(self) -> int:
        """The step that an event belongs to now."""
        return self._next if self.current is None else self.current.step

    @property
    def num_in_flight(self) -> int | None:
        """Steps decided and not taken in; None while the scheduler itself is at work."""
        return None if self.is_deciding else len(self._open)

    @property
    def num_open(self) -> int:
        """Steps decided and not taken in."""
        return len(self._open)

    def tell(self, event: Event) -> None:
        """Takes an event of the current step; where there is none, it is told at once."""
        if self.current is not None:
            self.current.events.append(event)
        else:
            self._between.append(event)
            self.publish()

    def tell_with_next(self, event: Event) -> None:
        """Takes an event that the next step begins with, where no step is at hand."""
        (self._between if self.current is None else self.current.events).append(event)

    def tell_now(self, *events: Event) -> None:
        """Tells events at once, also while steps are in flight: nothing can come before them."""
        self._between.extend(events)
        self.publish()

    def publish(self) -> None:
        """Hands over the events that belong to no step in flight."""
        if self._between:
            self._publish_held()
            if self.counts_preemptions:
                self._recorder.count_preemptions(self.num_preemptions)
            self._recorder.record_events(self._between)
            self._between = []

    # ------------------------------------------------------------------------------ handing over

    def flush(self) -> None:
        """Hands over all that is held back; steps in flight go without what an update adds."""
        self.publish()
        self._publish_held()
        for step in self._open.values():
            self._hand_over(step)
        self._open.clear()
        self.current = None

    def _hand_over_or_hold(self, step: OpenStep, row: StepRow) -> None:
        if self._held is not None:
            self._publish_held()
        if row.num_scheduled_tokens == 0 and not step.events and self._is_busy():
            self._held = step
            return
        self._hand_over(step)

    def _hand_over(self, step: OpenStep) -> None:
        if step.row is not None:
            self._recorder.record_step(step.row, step.events, step.requests)

    def _publish_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._hand_over(held)

    @staticmethod
    def _repeats(last: OpenStep, step: OpenStep, row: StepRow) -> bool:
        """Whether the row says what the held one said; then it is counted there."""
        held = last.row
        if held is None or step.events or row.num_scheduled_tokens != 0:
            return False
        if row.ts - held.ts > REPEAT_NS:
            return False
        if any(getattr(row, name) != getattr(held, name) for name in _STATE):
            return False
        held.num_repeats += 1
        held.updated_ts = row.updated_ts
        return True

    def _enter_rest(self) -> None:
        """Says what comes after an update: the next step's forward pass, output, or nothing."""
        if self.current is not None:
            self._recorder.enter_phase(self.current.step, Phase.forward)
        else:
            phase = Phase.output if self._is_busy() else Phase.idle
            self._recorder.enter_phase(max(self._next - 1, 0), phase)
