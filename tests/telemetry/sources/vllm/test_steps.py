"""Steps are paired with their updates, and handed over with their events."""

from __future__ import annotations

from itertools import count

import pytest

from telemetry.recorder import ListRecorder
from telemetry.records import Event, StepRow
from telemetry.sources.vllm.steps import MAX_OPEN_STEPS, Steps
from telemetry.vocabulary import EventKind


class Output:
    """What vLLM's `schedule()` returns."""


class Run:
    """Steps with a clock that moves by one each time it is read."""

    def __init__(self) -> None:
        self.recorder = ListRecorder()
        self.is_busy = True
        self.steps = Steps(self.recorder, count(1).__next__, lambda: self.is_busy)

    def schedule(self, num_tokens: int = 1) -> Output:
        step = self.steps.begin()
        step.row = StepRow(step=step.step, ts=step.ts, num_scheduled_tokens=num_tokens)
        output = Output()
        self.steps.decided(output)
        return output

    def update(self, output: Output) -> None:
        self.steps.begin_update(output)
        self.steps.finish(output, self.steps.clock())

    def tell(self, kind: EventKind) -> None:
        self.steps.tell(Event(kind=kind, step=self.steps.step, ts=self.steps.clock()))


@pytest.fixture
def run() -> Run:
    return Run()


def test_an_update_belongs_to_the_step_whose_output_it_brings(run: Run) -> None:
    first, second = run.schedule(3), run.schedule(4)
    run.update(first)
    run.update(second)
    rows = run.recorder.steps
    assert [(row.step, row.num_steps_in_flight) for row in rows] == [(0, 1), (1, 2)]
    assert all(row.update_ns is not None for row in rows)


def test_an_event_in_flight_belongs_to_the_newest_step(run: Run) -> None:
    first = run.schedule()
    second = run.schedule()
    run.tell(EventKind.paused)
    run.update(first)
    run.update(second)
    assert [event.step for event in run.recorder.events] == [1]


def test_an_event_between_steps_is_told_at_once(run: Run) -> None:
    run.tell(EventKind.paused)
    assert [event.step for event in run.recorder.events] == [0]


def test_an_unknown_update_changes_nothing(run: Run) -> None:
    run.update(Output())
    assert run.recorder.steps == []


def test_equal_empty_steps_are_one_row(run: Run) -> None:
    for _ in range(4):
        run.update(run.schedule(0))
    run.update(run.schedule(1))
    assert [(row.step, row.num_repeats) for row in run.recorder.steps] == [(0, 4), (4, 1)]


def test_steps_that_never_come_back_are_told_without_their_update(run: Run) -> None:
    outputs = [run.schedule() for _ in range(MAX_OPEN_STEPS + 1)]
    (row,) = run.recorder.steps
    assert (row.step, row.update_ns) == (0, None)
    run.update(outputs[0])
    assert len(run.recorder.steps) == 1


def test_a_flush_tells_what_is_in_flight(run: Run) -> None:
    run.schedule()
    run.steps.flush()
    assert [row.step for row in run.recorder.steps] == [0]


def test_a_step_in_which_we_failed_is_left_out(run: Run) -> None:
    first = run.schedule()
    run.steps.begin()
    run.steps.abandon()
    run.update(first)
    assert [row.step for row in run.recorder.steps] == [0]
