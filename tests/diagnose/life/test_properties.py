"""Whatever is seen in whatever order: nothing is lost, nothing is told twice, nothing chatters."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.finding import Severity
from diagnose.life.look import Look
from diagnose.life.machine import CALM_NS, FLAP_OPENINGS, FLAP_WINDOW_NS, HOLD_NS, UPDATE_NS, Change
from diagnose.life.rows import lives_of, row_of
from diagnose.reading import NS
from tests.diagnose.life.looks import ENGINE, ID, RULE, Course, Seen, events_of

SEEN = st.sampled_from(("open", "over", "absent", "unmeasured"))
PAUSES = st.sampled_from((10 * NS, 25 * NS, 60 * NS, 5 * 60 * NS, CALM_NS))
SEVERITIES = st.sampled_from(tuple(Severity))
LOOKS = st.lists(st.tuples(SEEN, PAUSES, SEVERITIES, st.integers(1, 1000)), max_size=60)

MOVES = {
    "opened": (None,),
    "updated": ("open",),
    "cleared": ("open", "flapping"),
    "reopened": ("cleared",),
    "flapping": ("cleared",),
    "settled": ("flapping",),
}
"""In which status each event may be told."""


def followed(looks: Sequence[tuple[Seen, int, Severity, int]], restarts: bool = False) -> Course:
    course = Course()
    for number, (seen, pause, severity, num) in enumerate(looks):
        if restarts and number % 3 == 2:
            course.lives = lives_of([row_of(change) for change in course.told])
        what = {"severity": severity, "num": num} if seen in ("open", "over") else {}
        course.look(seen, pause_ns=pause, **what)
    return course


@given(LOOKS, st.booleans())
def test_whoever_is_told_the_changes_knows_the_state(looks, restarts) -> None:  # type: ignore[no-untyped-def]
    course = followed(looks, restarts)
    status, last = None, 0
    for change in course.told:
        assert status in MOVES[change.event], events_of(course.told)
        assert change.ts > last
        assert (change.cleared_ts is not None) == (change.status == "cleared")
        assert change.cleared_ts is None or change.cleared_ts >= change.opened_ts
        status, last = change.status, change.ts
    known = {name: life.told.status for name, life in course.lives.items()}
    assert known == ({} if status is None else {ID: status})


@given(LOOKS, st.booleans())
def test_what_is_seen_open_is_told_and_open(looks, restarts) -> None:  # type: ignore[no-untyped-def]
    course = Course()
    for seen, pause, severity, num in looks:
        if restarts:
            course.lives = lives_of([row_of(change) for change in course.told])
        what = {"severity": severity, "num": num} if seen in ("open", "over") else {}
        course.look(seen, pause_ns=pause, **what)
        if seen == "open":
            assert course.status in ("open", "flapping")
        if seen == "over":
            assert course.told


@given(LOOKS)
def test_nothing_clears_that_was_seen_within_the_hold(looks) -> None:  # type: ignore[no-untyped-def]
    course, last_open = Course(), None
    for seen, pause, severity, num in looks:
        what = {"severity": severity, "num": num} if seen in ("open", "over") else {}
        changes = course.look(seen, pause_ns=pause, **what)
        last_open = course.now if seen == "open" else last_open
        if "cleared" in events_of(changes) and last_open is not None and seen != "over":
            assert course.now - last_open >= HOLD_NS


@given(st.lists(st.tuples(PAUSES, SEVERITIES), min_size=1, max_size=30))
def test_what_cannot_be_measured_never_clears(pauses) -> None:  # type: ignore[no-untyped-def]
    course = Course()
    course.look("open")
    for pause, _ in pauses:
        assert course.look("unmeasured", pause_ns=pause) == []
    assert course.status == "open"


@settings(max_examples=30)
@given(st.lists(SEEN, min_size=100, max_size=400), st.booleans())
def test_it_never_chatters(seen, restarts) -> None:  # type: ignore[no-untyped-def]
    looks = [(each, 10 * NS, Severity.high, 10) for each in seen]
    told = followed(looks, restarts).told
    most = 2 * FLAP_OPENINGS + FLAP_WINDOW_NS // CALM_NS + FLAP_WINDOW_NS // UPDATE_NS
    for change in told:
        lately = [each for each in told if 0 <= change.ts - each.ts < FLAP_WINDOW_NS]
        assert len(lately) <= most, events_of(lately)


@given(LOOKS)
def test_looking_twice_at_the_same_tells_nothing_new(looks) -> None:  # type: ignore[no-untyped-def]
    course = followed(looks)
    told: list[Change] = list(course.told)
    if ID in course.lives:
        same = course.lives[ID].told.sighting
        course.take(Look(ts=course.now, end_ts=course.now, unmeasured=frozenset({(ENGINE, RULE)})))
        if course.status == "open":
            course.take(Look(ts=course.now, end_ts=course.now, sightings={ID: same}))
    assert [c for c in course.told[len(told) :] if c.event in ("opened", "reopened")] == []


@given(LOOKS)
def test_a_restart_opens_nothing_anew_and_agrees_in_the_end(looks) -> None:  # type: ignore[no-untyped-def]
    kept, restarted = followed(looks), followed(looks)
    restarted.lives = lives_of([row_of(change) for change in restarted.told])
    if ID not in kept.lives:
        return
    for course in (kept, restarted):
        for _ in range(4):
            course.look("absent", pause_ns=CALM_NS)
    assert kept.status == restarted.status == "cleared"
    assert kept.events == restarted.events
