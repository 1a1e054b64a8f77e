"""The recorder: what an engine knows of telemetry.

`Recorder` is the whole interface between an engine and the record. It never raises into the engine
and never blocks it. `NullRecorder` is the default; `ListRecorder` keeps the rows for tests and
replay; `telemetry.ring.RingRecorder` writes them where they survive the engine.

This module is a leaf: standard library and numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from telemetry.records import EngineRow, Event, StepRequests, StepRow
from telemetry.vocabulary import Phase


class Recorder(Protocol):
    """Takes down what an engine does, in the order it happens."""

    @property
    def is_recording(self) -> bool:
        """Whether rows are worth building; False says that `record_step` would drop them."""

    def describe_engine(self, engine: EngineRow) -> None:
        """Takes the engine's settings; the last description counts."""

    def record_step(
        self, step: StepRow, events: Sequence[Event], requests: StepRequests | None
    ) -> None:
        """Takes a whole step: its row, its events in order, its dense rows.

        Arguments are read before the call returns and may be reused by the caller.
        """

    def record_events(self, events: Sequence[Event]) -> None:
        """Takes events that happened between steps; they are published at once."""

    def enter_phase(self, step: int, phase: Phase) -> None:
        """Says what the step loop does from now on, for whoever looks at a hang."""

    def count_preemptions(self, total: int) -> None:
        """Takes the scheduler's own counter, which the record is checked against."""

    def count_error(self, message: str) -> None:
        """Takes that something could not be recorded, and what, in a sentence for people."""

    def close(self) -> None:
        """Says good-bye: an engine that ends without this call has died."""


class NullRecorder:
    """Records nothing."""

    is_recording = False

    def describe_engine(self, engine: EngineRow) -> None: ...

    def record_step(
        self, step: StepRow, events: Sequence[Event], requests: StepRequests | None
    ) -> None: ...

    def record_events(self, events: Sequence[Event]) -> None: ...

    def enter_phase(self, step: int, phase: Phase) -> None: ...

    def count_preemptions(self, total: int) -> None: ...

    def count_error(self, message: str) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class ListRecorder:
    """Keeps all rows in lists, for tests and replay."""

    engines: list[EngineRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    step_requests: list[tuple[int, StepRequests]] = field(default_factory=list)
    num_preemptions: int = 0
    errors: list[str] = field(default_factory=list)
    closed: bool = False

    @property
    def is_recording(self) -> bool:
        return True

    def describe_engine(self, engine: EngineRow) -> None:
        self.engines.append(engine)

    def record_step(
        self, step: StepRow, events: Sequence[Event], requests: StepRequests | None
    ) -> None:
        self.steps.append(step)
        self.events.extend(events)
        if requests is not None:
            self.step_requests.append((step.step, requests))

    def record_events(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def enter_phase(self, step: int, phase: Phase) -> None: ...

    def count_preemptions(self, total: int) -> None:
        self.num_preemptions = total

    def count_error(self, message: str) -> None:
        self.errors.append(message)

    def close(self) -> None:
        self.closed = True
