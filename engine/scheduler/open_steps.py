"""Steps that are open: decided, and not taken in yet.

A step is handed to the recorder with all its events when its outputs have been taken in; events
between steps are handed over at once. Steps that scheduled nothing and are equal to the one before
are told in one row with a count, at most `REPEAT_NS` long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.scheduler.plan import StepPlan
from engine.scheduler.rows import is_same_state, step_requests, step_row, with_accepted
from telemetry.recorder import Recorder
from telemetry.records import DraftCounts, Event, StepRequests, StepRow
from telemetry.vocabulary import EventKind, Phase

if TYPE_CHECKING:
    from engine.scheduler.output import ModelRunnerOutput
    from engine.scheduler.state import SchedulerState

REPEAT_NS = 1_000_000_000


@dataclass(slots=True)
class _OpenStep:
    """A step that has been decided and not been taken in."""

    step: int
    row: StepRow | None = None
    requests: StepRequests | None = None
    events: list[Event] = field(default_factory=list)
    accepted: dict[int, int] = field(default_factory=dict)


class OpenSteps:
    """Holds the rows of steps that are open, and hands each over when it is taken in."""

    def __init__(
        self, recorder: Recorder, clock: Callable[[], int], scheduler: SchedulerState
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._scheduler = scheduler
        self._next_step = 0
        self._open: dict[int, _OpenStep] = {}
        self._current: _OpenStep | None = None
        self._between: list[Event] = []
        self.update_ts = 0
        self._held: _OpenStep | None = None
        self._is_deciding = False
        """Whether `schedule()` or `update_from_output()` is running."""

    def begin_step(self, plan: StepPlan) -> None:
        """A step begins; what was not handed over before it is its own."""
        self._next_step = plan.step + 1
        if self._is_off:
            return
        self._current = self._open[plan.step] = _OpenStep(plan.step, events=self._between)
        self._between = []
        self._is_deciding = True
        self._recorder.enter_phase(plan.step, Phase.schedule)

    def scheduled(self, plan: StepPlan) -> None:
        """The step is decided; nobody's progress has been advanced yet."""
        self._is_deciding = False
        if self._current is None or self._is_off:
            return
        row = step_row(plan, self._scheduler)
        row.num_steps_in_flight = len(self._open)
        if plan.is_throttled is not None:
            row.throttled = int(plan.is_throttled)
        self._current.row = row
        self._current.requests = step_requests(plan, self._scheduler)
        row.schedule_ns = self._clock() - plan.started_ts

    def begin_update(self, step: int) -> None:
        """A step has been executed; its tokens are about to be taken in."""
        self.update_ts = self._clock()
        if self._is_off:
            return
        self._recorder.enter_phase(step, Phase.update)
        self._current = self._open[step]
        self._is_deciding = True

    def finish_step(self, step: int, runner_output: ModelRunnerOutput) -> None:
        """The step is over: hands it to the recorder."""
        if self._is_off:
            self._forget_all()
            return
        self._recorder.count_preemptions(self._scheduler.num_preemptions)
        done = self._open.pop(step)
        if done.row is not None:
            self._complete(done, done.row, runner_output)
        self.update_ts = 0
        self._is_deciding = False
        self._current = next(reversed(self._open.values()), None)

    def _forget_all(self) -> None:
        """Drops what nobody takes any more: the recorder is off, or has been turned off."""
        self.update_ts, self._is_deciding = 0, False
        if self._open:
            self._open, self._current, self._held, self._between = {}, None, None, []

    def _complete(self, done: _OpenStep, row: StepRow, runner_output: ModelRunnerOutput) -> None:
        """Adds what is known only now, and hands the step over unless it can be counted."""
        row.graph_mode = runner_output.graph_mode
        row.bitmask_ns = runner_output.bitmask_ns
        row.inputs_ns = runner_output.inputs_ns
        row.forward_ns = runner_output.forward_ns
        row.draft_ns = runner_output.draft_ns
        if runner_output.draft_ns is not None:
            row.num_drafted = sum(map(len, runner_output.draft_token_ids.values()))
        row.sample_ns = runner_output.sample_ns
        row.connector_ns = runner_output.connector_ns
        row.num_preemptions_total = self._scheduler.num_preemptions
        row.updated_ts = self._clock()
        row.update_ns = row.updated_ts - self.update_ts
        if done.accepted and done.requests is not None:
            row.num_accepted = sum(done.accepted.values())
            done.requests = with_accepted(done.requests, done.accepted)
            done.events.append(self._verified_drafts(done))
        if not self._repeats_held(done, row):
            self._record(done, row)

    def _verified_drafts(self, done: _OpenStep) -> DraftCounts:
        return DraftCounts(
            kind=EventKind.drafts_verified,
            step=done.step,
            ts=self.update_ts,
            draft_requests=list(done.accepted),
            draft_counts=list(done.accepted.values()),
        )

    def flush(self) -> None:
        """Hands over all that is held back: the engine ends, or somebody looks at the record.

        Steps that have not been taken in are told without what their update would have added.
        """
        self.publish_between_steps()
        self._publish_held()
        for step in self._open.values():
            if step.row is not None:
                self._recorder.record_step(step.row, step.events, step.requests)
                step.row, step.events = None, []

    def publish_between_steps(self) -> None:
        """Hands over events that belong to no step in flight; the next step is theirs."""
        if not self._between:
            return
        self._publish_held()
        self._recorder.count_preemptions(self._scheduler.num_preemptions)
        self._recorder.record_events(self._between)
        self._between = []

    def _record(self, done: _OpenStep, row: StepRow) -> None:
        self._publish_held()
        is_empty = row.num_scheduled_tokens == 0 and not done.events
        if is_empty and self._scheduler.has_requests():
            self._held = done
            return
        self._recorder.record_step(row, done.events, done.requests)

    def _repeats_held(self, done: _OpenStep, row: StepRow) -> bool:
        """Whether the row says what the held one said; then it is counted there."""
        held = None if self._held is None else self._held.row
        if held is None or done.events or row.num_scheduled_tokens != 0:
            return False
        if row.ts - held.ts > REPEAT_NS or not is_same_state(row, held):
            return False
        if (row.num_steps_in_flight, row.throttled) != (held.num_steps_in_flight, held.throttled):
            return False
        held.num_repeats += 1
        held.updated_ts = row.updated_ts
        return True

    def _publish_held(self) -> None:
        held, self._held = self._held, None
        if held is not None and held.row is not None:
            self._recorder.record_step(held.row, (), held.requests)

    @property
    def _is_off(self) -> bool:
        """Whether nobody takes rows, so that none need be made."""
        return not self._recorder.is_recording

    @property
    def _step(self) -> int:
        """The step that an event belongs to now."""
        return self._next_step if self._current is None else self._current.step

    @property
    def _num_in_flight(self) -> int | None:
        """Steps decided and not taken in; None while the scheduler itself is at work."""
        return None if self._is_deciding else len(self._open)

    @property
    def _events(self) -> list[Event]:
        """Where an event goes now; where nobody takes events, into a list that is thrown away."""
        if self._is_off:
            return []
        return self._between if self._current is None else self._current.events
