"""The life of one finding, told in changes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from diagnose.finding import Severity
from diagnose.life.ends import End
from diagnose.life.look import Look
from diagnose.life.machine import (
    CALM_NS,
    FLAP_OPENINGS,
    HOLD_NS,
    STILL_OPEN_NS,
    UPDATE_NS,
    Change,
)
from diagnose.life.rows import lives_of, row_of
from diagnose.reading import NS
from tests.diagnose.life.looks import (
    ENGINE,
    ID,
    PERIOD_NS,
    RULE,
    START,
    Course,
    events_of,
    sighting,
)

HELD: tuple[str, ...] = ("absent",) * (HOLD_NS // PERIOD_NS + 1)
"""Looks after which a hold-down has passed."""


def cleared(course: Course) -> Change:
    """Lets an open finding clear; returns that change."""
    (change,) = [change for _ in HELD for change in course.look("absent")]
    return change


def test_it_opens_once_however_often_it_is_seen() -> None:
    assert Course().looks("open", "open", "open") == ["opened"]


def test_it_clears_when_it_has_stayed_away() -> None:
    course = Course()
    course.looks("open", "open")
    assert course.looks("absent", "absent", "absent") == []
    assert course.looks("absent") == ["cleared"]
    assert course.told[-1].cleared_ts == START + 2 * PERIOD_NS


def test_a_short_absence_is_not_told() -> None:
    assert Course().looks("open", "absent", "absent", "open", "open") == ["opened"]


def test_not_measured_is_not_cleared() -> None:
    course = Course()
    assert course.looks("open", *(["unmeasured"] * 100)) == ["opened"]
    assert course.status == "open"


def test_an_engine_of_which_too_little_is_known_keeps_its_findings() -> None:
    course = Course()
    course.look("open")
    course.take(Look(ts=course.now + HOLD_NS * 9, end_ts=0, unjudged=frozenset({ENGINE})))
    assert course.status == "open"


def test_it_opens_again_under_the_same_id() -> None:
    course = Course()
    course.look("open")
    first = cleared(course)
    (again,) = course.look("open")
    assert (again.event, again.num_openings, again.sighting.id) == ("reopened", 2, ID)
    assert first.cleared_ts is not None
    assert again.opened_ts > first.cleared_ts


def test_what_came_and_went_before_the_first_look_is_told() -> None:
    course = Course(now=START + 600 * NS)
    over = Look(
        ts=course.now, end_ts=START + 500 * NS, sightings={ID: sighting(START, START + 7 * NS)}
    )
    changes = course.take(over)
    assert events_of(changes) == ["opened", "cleared"]
    assert (changes[1].opened_ts, changes[1].cleared_ts) == (START, START + 7 * NS)
    assert changes[0].ts < changes[1].ts


def test_what_came_and_went_between_two_looks_is_told() -> None:
    course = Course()
    course.look("open")
    cleared(course)
    begun = course.now + NS
    course.now += 600 * NS
    short = sighting(begun, begun + NS)
    changes = course.take(Look(ts=course.now, end_ts=course.now, sightings={ID: short}))
    assert events_of(changes) == ["reopened", "cleared"]


def test_the_same_end_is_told_once() -> None:
    course = Course()
    over = Look(ts=START, end_ts=START, sightings={ID: sighting(START - 90 * NS, START - 60 * NS)})
    assert len(course.take(over)) == 2
    assert course.take(over) == []


def test_a_worse_severity_is_told_at_once() -> None:
    course = Course()
    course.look("open", severity=Severity.medium)
    (change,) = course.look("open", severity=Severity.critical)
    assert (change.event, change.reason) == ("updated", "severity medium -> critical")


def test_a_severity_that_swings_is_told_seldom() -> None:
    course = Course()
    swing = [Severity.high, Severity.medium] * 30
    told = [change for each in swing for change in course.look("open", severity=each)]
    assert len(told) <= 1 + len(swing) * PERIOD_NS // UPDATE_NS


@pytest.mark.parametrize(
    ("num", "reason"), [(19, None), (20, "count 10 -> 20"), (200, "count 10 -> 200")]
)
def test_a_count_is_told_when_it_has_doubled(num: int, reason: str | None) -> None:
    course = Course()
    course.look("open", num=10)
    changes = course.look("open", num=num, pause_ns=UPDATE_NS)
    assert [change.reason for change in changes] == ([] if reason is None else [reason])


def test_another_cause_is_told() -> None:
    course = Course()
    course.look("open")
    (change,) = course.look("open", cause="smaller_pool", pause_ns=UPDATE_NS)
    assert change.reason == "cause burst_of_arrivals -> smaller_pool"


def test_one_that_stays_open_is_told_again_after_half_a_day() -> None:
    course = Course()
    course.look("open")
    assert course.look("open", pause_ns=STILL_OPEN_NS - PERIOD_NS) == []
    (change,) = course.look("open")
    assert change.reason == "still open after 12 h 0 min"


def test_one_that_another_explains_says_which() -> None:
    course = Course()
    course.look("open")
    explained = {(ENGINE, RULE): "worker-hang"}
    for pause in (0, HOLD_NS):
        course.take(Look(ts=course.now + pause, end_ts=course.now, explained=explained))
    assert (course.status, course.told[-1].reason) == ("cleared", "explained by worker-hang")


def flap(course: Course, times: int) -> None:
    for _ in range(times):
        course.looks("open", *HELD)


def test_one_that_comes_and_goes_is_told_once_as_flapping() -> None:
    course = Course()
    flap(course, 20)
    expected = ["opened", "cleared", *(["reopened", "cleared"] * (FLAP_OPENINGS - 2)), "flapping"]
    assert course.events == expected
    assert course.told[-1].reason == "opened 4 times in 2 min 30 s"


def test_a_flapping_one_that_stays_away_clears_with_its_number() -> None:
    course = Course()
    flap(course, 20)
    assert course.looks("absent", pause_ns=CALM_NS) == ["cleared"]
    assert course.told[-1].num_openings == 20
    assert course.told[-1].reason.startswith("opened 20 times in ")


def test_a_flapping_one_that_stays_settles() -> None:
    course = Course()
    flap(course, 5)
    course.look("open")
    (change,) = course.look("open", pause_ns=CALM_NS)
    assert (change.event, change.status, change.num_openings) == ("settled", "open", 6)


def test_findings_of_one_look_are_told_at_different_moments() -> None:
    course = Course()
    others = {
        each: sighting(START - 90 * NS, START - 60 * NS)
        for each in ("kvp-00000001", "kvp-00000002")
    }
    changes = course.take(Look(ts=START, end_ts=START, sightings=others))
    assert [change.ts - START for change in changes] == [0, 1, 2, 3]


# ------------------------------------------------------------------------ its engine has ended

DIED = {ENGINE: End("engine_died", START)}


def at_the_end(course: Course, **what: object) -> list[Change]:
    """Looks once, after the engine has ended."""
    course.now += PERIOD_NS
    look = Look(ts=course.now, end_ts=course.now, ended=DIED, judged=frozenset({ENGINE}))
    return course.take(replace(look, **what))  # type: ignore[arg-type]


def test_what_the_log_says_is_over_clears_at_once_when_the_engine_has_ended() -> None:
    course = Course()
    course.look("open")
    over = sighting(START, START + 15 * NS)
    (change,) = at_the_end(course, sightings={ID: over})
    assert (change.event, change.cleared_ts) == ("cleared", START + 15 * NS)
    assert at_the_end(course, sightings={ID: over}) == []


def test_what_was_not_there_any_more_clears_at_once() -> None:
    course = Course()
    course.look("open")
    assert events_of(at_the_end(course)) == ["cleared"]


@pytest.mark.parametrize(
    "what",
    [
        {"sightings": {ID: sighting()}},
        {"unmeasured": frozenset({(ENGINE, RULE)})},
        {"unjudged": frozenset({ENGINE})},
        {"judged": frozenset()},
    ],
    ids=["open", "not measured", "too little", "outside the window"],
)
def test_what_nobody_saw_clear_was_open_when_the_record_ended(what: dict[str, object]) -> None:
    course = Course()
    course.look("open")
    (change,) = at_the_end(course, **what)
    assert (change.event, change.status, change.cleared_ts) == ("ended", "ended", None)
    assert change.reason == "open when the record ended: engine died"
    assert at_the_end(course, **what) == []
    course.lives = lives_of([row_of(each) for each in course.told])
    assert at_the_end(course, **what) == []


def test_one_that_ended_clears_where_the_log_says_so_later() -> None:
    course = Course()
    course.look("open")
    at_the_end(course, unjudged=frozenset({ENGINE}))
    over = sighting(START, START + 7 * NS)
    assert events_of(at_the_end(course, sightings={ID: over})) == ["cleared"]


def test_what_came_and_went_before_the_end_is_told() -> None:
    course = Course()
    over = sighting(START, START + 7 * NS)
    assert events_of(at_the_end(course, sightings={ID: over})) == ["opened", "cleared"]


def test_an_ended_one_is_not_told_again_for_years() -> None:
    course = Course()
    course.look("open")
    at_the_end(course, unjudged=frozenset({ENGINE}))
    course.now += 10 * STILL_OPEN_NS
    assert at_the_end(course, judged=frozenset()) == []


def test_a_cause_that_replays_told_is_not_compared_with_a_look() -> None:
    course = Course()
    course.look("open")
    shares = [{"kind": None, "name": "unexplained", "num": 1.0, "ratio": 1.0}]
    told = course.told[-1]
    document = json.loads(told.sighting.body) | {"shares": shares}
    body = json.dumps(document)
    explained = replace(told, event="explained", ts=told.ts + 1)
    row = row_of(replace(explained, sighting=replace(told.sighting, body=body)))
    course.lives = lives_of([row_of(told), row])
    assert course.lives[ID].told.sighting.cause is None
    assert course.look("open", pause_ns=2 * UPDATE_NS, cause="more_arrivals") == []
