"""Every reason of the vocabulary occurs, and can be read back from the record.

Each word has a scenario in `tests.engine.reasons`, or a place that says why the scheduler never
says it; a word that is added without either fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path

import pytest

from telemetry.records import RequestFinished, RequestPreempted
from telemetry.vocabulary import (
    EventKind,
    FinishReason,
    PreemptionCause,
    SkipReason,
    StopReason,
    VictimRule,
    ZeroReason,
)
from tests.engine.builders import Run
from tests.engine.reasons import ends, events, preemptions, skips, stops, zeros

Scenario = Callable[[], Run]
ROOT = Path(__file__).parents[2]


def skip_reasons(run: Run) -> Iterable[int | None]:
    return (event.reason for event in run.recorder.events if event.kind == EventKind.skipped)


def stop_reasons(run: Run) -> Iterable[int | None]:
    return (row.stop_reason for row in run.recorder.steps)


def zero_reasons(run: Run) -> Iterable[int | None]:
    dense = [rows.zero_reason for _, rows in run.recorder.step_requests]
    return (int(reason) for column in dense if column is not None for reason in column)


def preemption_causes(run: Run) -> Iterable[int | None]:
    return (e.cause for e in run.recorder.events if isinstance(e, RequestPreempted))


def victim_rules(run: Run) -> Iterable[int | None]:
    return (e.victim_rule for e in run.recorder.events if isinstance(e, RequestPreempted))


def finish_reasons(run: Run) -> Iterable[int | None]:
    return (e.reason for e in run.recorder.events if isinstance(e, RequestFinished))


def event_kinds(run: Run) -> Iterable[int | None]:
    return (event.kind for event in run.recorder.events)


BOOK: list[tuple[type[IntEnum], dict[IntEnum, Scenario], Callable[[Run], Iterable[int | None]]]] = [
    (SkipReason, {**skips.SCENARIOS}, skip_reasons),
    (StopReason, {**stops.SCENARIOS}, stop_reasons),
    (ZeroReason, {**zeros.SCENARIOS}, zero_reasons),
    (PreemptionCause, {**preemptions.CAUSES}, preemption_causes),
    (VictimRule, {**preemptions.RULES}, victim_rules),
    (FinishReason, {**ends.SCENARIOS}, finish_reasons),
    (EventKind, {**events.SCENARIOS}, event_kinds),
]
"""Each closed set, a scenario for each of its words, and where the record has them."""

ELSEWHERE: dict[IntEnum, str] = {**ends.MADE_ELSEWHERE, **events.MADE_ELSEWHERE}


@pytest.mark.parametrize(
    ("word", "scenario", "read"),
    [
        pytest.param(word, scenario, read, id=f"{enum.__name__}.{word.name}")
        for enum, scenarios, read in BOOK
        for word, scenario in scenarios.items()
    ],
)
def test_the_word_occurs_and_is_recorded(
    word: IntEnum, scenario: Scenario, read: Callable[[Run], Iterable[int | None]]
) -> None:
    assert word in set(read(scenario()))


@pytest.mark.parametrize(("enum", "scenarios", "_"), BOOK, ids=lambda x: getattr(x, "__name__", ""))
def test_every_word_has_a_scenario_or_a_place_of_its_own(
    enum: type[IntEnum], scenarios: dict[IntEnum, Scenario], _: object
) -> None:
    elsewhere = {word for word in (*ELSEWHERE, *events.MADE_BY_NOBODY_HERE) if type(word) is enum}
    assert scenarios.keys() | elsewhere == set(enum)
    assert not scenarios.keys() & elsewhere


@pytest.mark.parametrize(("word", "place"), ELSEWHERE.items(), ids=lambda x: getattr(x, "name", x))
def test_a_word_that_is_made_elsewhere_is_made_there(word: IntEnum, place: str) -> None:
    assert f"{type(word).__name__}.{word.name}" in (ROOT / place).read_text()
