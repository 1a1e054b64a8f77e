"""What-if: what do I change, and what will it cost me? The recorded load, scheduled again."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import colours, links, source, states, whatif_data
from dashboard.charts.course import CourseLook, course_chart
from dashboard.colours import Colour
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from dashboard.whatif_data import CHARTED, SCAN_REPLAYS, SCANNED, Course
from diagnose.reading import Scope
from diagnose.replay.edits import with_clients
from diagnose.replay.prediction import (
    NUM_REPLAYS,
    Predicted,
    Prediction,
    Replays,
    Trust,
    predict,
)
from diagnose.replay.recorded_load import read_workload
from diagnose.replay.rows import ReplayError
from diagnose.replay.smallest import SEARCHED, Step, smallest_changes
from diagnose.replay.step_times import DECODES
from diagnose.replay.whatif_words import (
    amount,
    changes_of,
    clients_text,
    flags_of,
    headline,
    value_text,
    why_withheld,
)
from diagnose.replay.workload import Workload
from diagnose.words import plural, signed_percent, time_of_day
from telemetry.errors import StepscopeError
from telemetry.store import Log

SET, ARRIVALS = "set", "arrivals"
AS_DETECTED = "as detected"
MAX_STEPS = 400_000
"""Recorded steps times replays that are replayed without being asked for: about a minute."""
NUM_UNASKED = NUM_REPLAYS + 14 * SCAN_REPLAYS + NUM_REPLAYS
MAX_CLIENTS = 10_000
SIDE, MAIN = 0.29, 0.71
INSIDE = 62
AXES = 76
"""Pixels beside a plot for its axis and margins."""
STACKED_BELOW = 1120
GOALS = {0.5: "half", 0.8: "80 %", 1.0: "all"}
TINTS: dict[str, Colour] = {
    "num_preemptions": colours.EVICTED,
    "longest_pause_p95": colours.LOST,
    "ttft_p95": colours.USEFUL,
    "output_tokens_per_second": colours.PREFILL,
}
SIGNS = {
    Trust.FINE: ":green[✓]",
    Trust.DIRECTION: ":orange[▲]",
    Trust.WITHHELD: ":red[✕]",
    Trust.NOT_MEASURED: ":gray[–]",
}
Key = tuple[str, source.Stamp | None, int, int | None, int, str]
"""What a load is known by: log, its state, engine, window, how clients behave."""


def draw(page: Page) -> None:
    """Draws the page. Nothing on it moves: a live log is replayed as it was when it was opened."""
    states.lost(page)
    try:
        if page.diagnosis() is None:
            states.empty()
            return
        _page(page, _as_opened(page))
    except ReplayError as error:
        st.markdown("### This window cannot be replayed")
        states.not_measured(
            "whatif",
            "what a change would do",
            f"{in_markdown(str(error), 400)}.",
            "A window of a longer record needs every step of its own.",
        )
    except StepscopeError as error:
        states.unreadable(error)


def _as_opened(page: Page) -> Scope:
    """Returns the window to replay; of a live log that of the first look, until asked again."""
    if not page.is_live or page.is_pinned:
        return page.scope
    key = f"whatif-{page.scope.engine}"
    scope: Scope = st.session_state.setdefault(key, page.scope)
    moment = time_of_day(scope.end_ts, 0)
    told, again = st.columns([4, 1], vertical_alignment="center")
    told.caption(f"● Replayed as it was recorded until {moment}; this page does not move.")
    if again.button("Replay what has come since", key="whatif-again"):
        st.session_state[key] = page.scope
        st.rerun()
    return scope


def _page(page: Page, scope: Scope) -> None:
    head = st.container()
    side, main = st.columns([SIDE, MAIN], gap="small")
    with side, st.container(border=True, key="card-whatif-knob"):
        st.markdown("**Change one setting**")
        choice = whatif_data.choice_of(links.taken(SET))
        name = _setting(choice)
        key = _key(page, scope, "detected")
        detected = _load(key, page.log)
        key = (*key[:-1], _clients(detected))
        workload = _load(key, page.log)
        if not _may_replay(workload):
            return
        before = _replays(key, SCAN_REPLAYS, workload)
        course = _course(key, name, workload, before)
        value = _value(course, choice, workload)
    prediction = _prediction(key, name, value, workload)
    with head:
        _headline(course, value, prediction, workload)
    with side:
        _trust(prediction)
    with main:
        _courses(page, course, value, prediction)
    _smallest(key, workload)


# ----------------------------------------------------------------------------------------- choosing


def _setting(choice: tuple[str, Any] | None) -> str:
    """Draws which setting is changed; the address' own comes first."""
    named = choice[0] if choice is not None and choice[0] in SCANNED else SEARCHED[0]
    names = list(dict.fromkeys([*SEARCHED, named, *SCANNED]))
    chosen = st.selectbox("Setting", names, index=names.index(named), key="whatif-setting")
    return chosen or named


def _clients(workload: Workload) -> str:
    """Draws how clients behave, as detected until somebody knows better; returns it."""
    found = workload.clients
    other = "open" if found.kind == "closed" else "closed"
    told = {
        "detected": f"{clients_text(found)}, {AS_DETECTED}",
        other: "requests arrive when they did"
        if other == "open"
        else "clients wait for their answers",
    }
    wanted, _, number = (links.taken(ARRIVALS) or "").partition(":")
    options = list(told)
    index = options.index(wanted) if wanted in options else 0
    chosen = st.radio(
        "Arrivals", options, index=index, format_func=told.__getitem__, key="whatif-arrivals"
    )
    st.caption(in_markdown(found.reason, 300))
    if chosen == "detected" or chosen is None:
        st.query_params.pop(ARRIVALS, None)
        return "detected"
    if chosen == "closed":
        chosen = f"closed:{_num_clients(workload, number)}"
    st.query_params[ARRIVALS] = chosen
    return chosen


def _num_clients(workload: Workload, number: str) -> int:
    """Draws how many clients wait for answers: as many as once decoded, until told otherwise."""
    most = max(1, round(workload.step_times.largest[DECODES]))
    given = int(number) if number.isdecimal() and 0 < int(number) <= MAX_CLIENTS else most
    told = st.number_input("Clients", 1, MAX_CLIENTS, given, key="whatif-clients")
    return int(told)


def _value(course: Course, choice: tuple[str, Any] | None, workload: Workload) -> Any:
    """Draws the values of a setting; returns the chosen one, and puts it into the address."""
    wanted = whatif_data.asked(choice, workload).get(course.name, _suggested(course))
    values = whatif_data.ordered([*course.values, wanted])
    label = f"{course.name}, recorded {value_text(course.now)}"
    if len(values) < 2:
        st.caption(f"{course.name} has no other value that these settings allow.")
        return course.now
    key = f"whatif-value-{course.name}"
    if course.is_number:
        value = st.select_slider(label, values, value=wanted, format_func=value_text, key=key)
    else:
        index = values.index(wanted)
        value = st.radio(label, values, index=index, format_func=value_text, key=key)
    st.query_params[SET] = whatif_data.address_of(course.name, value)
    return value


def _suggested(course: Course) -> Any:
    """Returns the mildest value that removes 80 % of the preemptions; else the last tried."""
    for prediction in course.predictions:
        change = prediction.of("num_preemptions").change
        if change is not None and change <= -0.8:
            return prediction.changes[0].after
    return course.predictions[-1].changes[0].after if course.predictions else course.now


def _may_replay(workload: Workload) -> bool:
    """Says how long it takes where it takes long; returns whether it is wanted all the same."""
    work = workload.step_times.num_steps * NUM_UNASKED
    if work <= MAX_STEPS:
        return True
    st.caption(
        f"This window has {workload.step_times.num_steps:,} steps, and a course takes "
        f"{NUM_UNASKED} replays of it. A shorter window is quicker."
    )
    return st.toggle("Replay it all the same", key="whatif-long")


# ---------------------------------------------------------------------------------------- replaying


def _key(page: Page, scope: Scope, clients: str) -> Key:
    is_whole = not page.is_live and not page.is_pinned
    stamp = None if page.is_live else source.stamp_of(page.path)
    start = None if is_whole else scope.start_ts
    return str(page.path), stamp, scope.engine, start, scope.end_ts, clients


@st.cache_resource(show_spinner="Reading the load …", max_entries=8)
def _load(key: Key, _log: Log) -> Workload:
    _, _, engine, start_ts, end_ts, clients = key
    workload = read_workload(_log, engine, start_ts, end_ts)
    kind, _, number = clients.partition(":")
    match kind:
        case "open" | "closed":
            return with_clients(workload, kind, int(number) if number else None)
    return workload


@st.cache_resource(show_spinner="Replaying it as it was …", max_entries=16)
def _replays(key: Key, number: int, _workload: Workload) -> Replays:
    return Replays.of(_workload, number)


@st.cache_resource(show_spinner="Replaying it at other values …", max_entries=32)
def _course(key: Key, name: str, _workload: Workload, _before: Replays) -> Course:
    return whatif_data.read_course(_workload, name, _before)


@st.cache_resource(show_spinner="Replaying the chosen value …", max_entries=64)
def _prediction(key: Key, name: str, value: Any, _workload: Workload) -> Prediction:
    before = _replays(key, NUM_REPLAYS, _workload)
    return predict(_workload, {name: value}, before=before)


@st.cache_resource(show_spinner="Looking for the smallest changes …", max_entries=16)
def _steps(key: Key, _workload: Workload) -> list[Step]:
    before = _replays(key, SCAN_REPLAYS, _workload)
    return smallest_changes(_workload, num_replays=SCAN_REPLAYS, before=before)


# ------------------------------------------------------------------------------------------ showing


def _headline(course: Course, value: Any, prediction: Prediction, workload: Workload) -> None:
    if value == course.now:
        st.markdown(f"### {course.name} stays at {value_text(value)}: choose another value")
    else:
        st.markdown(f"### {in_markdown(headline(prediction), 400)}")
    st.caption(
        f"Predicted by replaying {plural(workload.num_requests, 'recorded request')}; "
        f"{clients_text(workload.clients)}. Compare with the replay under the recorded setting, "
        "not with the record."
    )
    for note in prediction.notes:
        st.caption(f"● {in_markdown(note, 300)}")


def _trust(prediction: Prediction) -> None:
    with st.container(border=True, key="card-whatif-trust"):
        st.markdown("**Can this replay be trusted?**")
        st.caption("recorded settings, replayed")
        with st.container(key="doc-trust-c2-c3-c4"):
            st.table(
                [_trust_row(each) for each in whatif_data.trust_rows(prediction)],
                border="horizontal",
                hide_index=True,
            )
        st.caption(
            "▲ over 10 %: read the direction, not the number. Over 25 % a prediction is withheld. "
            f"Bands: lowest and highest of {SCAN_REPLAYS} replays with other step times, "
            f"of {NUM_REPLAYS} for the chosen value."
        )


def _trust_row(each: Predicted) -> dict[str, str]:
    error = "–" if each.error is None else signed_percent(each.error)
    return {
        "quantity": each.quantity.label,
        "recorded": amount(each.quantity, each.recorded),
        "replayed": amount(each.quantity, each.replayed),
        "error": f"{SIGNS[each.trust]} {error}",
    }


def _courses(page: Page, course: Course, value: Any, prediction: Prediction) -> None:
    whole = page.width if page.width < STACKED_BELOW else int(page.width * MAIN)
    is_narrow = whole < 640
    width = max(220, (whole - INSIDE) // (1 if is_narrow else 2) - AXES)
    with st.container(border=True, key="card-whatif-courses"):
        st.caption(f"◇ recorded &nbsp; ● replayed &nbsp; │ chosen &nbsp; x: {course.name}")
        columns = [st.container()] if is_narrow else st.columns(2, gap="small")
        for number, (name, fact) in enumerate(CHARTED.items()):
            with columns[number % len(columns)]:
                _one_course(page, course, name, fact, value, prediction, width)


def _one_course(
    page: Page,
    course: Course,
    name: str,
    fact: str,
    value: Any,
    prediction: Prediction,
    width: int,
) -> None:
    points = whatif_data.points_of(course, name, prediction)
    each = prediction.of(name)
    if points.empty:
        st.markdown(f"**{each.quantity.label}** :gray[– {in_markdown(why_withheld(each))}]")
        return
    fact = {
        Trust.FINE: fact,
        Trust.DIRECTION: "▲ direction only",
        Trust.WITHHELD: f"withheld: replay {signed_percent(each.error or 0.0)} off the record",
        Trust.NOT_MEASURED: "– not in the record: no back-test",
    }[each.trust]
    look = CourseLook(
        title=each.quantity.label,
        fact=fact,
        colour=TINTS[name],
        width=width,
        theme=page.theme,
        unit=f", {each.quantity.unit}" if each.quantity.unit else "",
        is_quiet=not each.is_told,
    )
    spot = value if course.is_number else value_text(value)
    now = course.now if course.is_number else value_text(course.now)
    chart = course_chart(
        points,
        look,
        recorded=None if each.recorded is None else (now, each.recorded),
        chosen=(spot, amount(each.quantity, each.predicted)) if value != course.now else None,
    )
    key = f"course-{course.name}-{name}-{page.theme}-{width}-{spot}"
    st.altair_chart(chart, width="content", theme=None, key=key)


def _smallest(key: Key, workload: Workload) -> None:
    with st.container(border=True, key="card-whatif-smallest"):
        st.markdown("**Smallest change, of those tried, that removes half, 80 %, all**")
        steps = _steps(key, workload)
        if not steps:
            st.caption("No tried change removes half of the preemptions, or there are none.")
            return
        with st.container(key="doc-smallest-c3-c4-c5-c6"):
            rows = [
                _step_row(step, steps[number - 1] if number else None)
                for number, step in enumerate(steps)
            ]
            st.table(rows, border="horizontal", hide_index=True)
        if any(step.prediction.costs_more_than_it_gains for step in steps):
            st.caption(
                "× dearer than it gains: output rate or whole answers get worse by over 5 %. The "
                "aim is latency and output rate, not zero preemptions."
            )


def _step_row(step: Step, before: Step | None) -> dict[str, str]:
    prediction = step.prediction
    is_first = before is None or before.goal != step.goal
    flag = flags_of(prediction) or changes_of(prediction)
    change = prediction.of("num_preemptions").change
    dear = " ×" if prediction.costs_more_than_it_gains else ""
    return {
        "removes": f"**{GOALS.get(step.goal, f'{step.goal:.0%}')}**" if is_first else "",
        "setting": f"`{flag}`{dear}",
        "preemptions": "–" if change is None else signed_percent(change),
        **{_heading(prediction.of(name)): _told(prediction.of(name)) for name in list(CHARTED)[1:]},
        "needs": step.needs,
    }


def _heading(each: Predicted) -> str:
    return each.quantity.label + (" ▲" if each.trust is Trust.DIRECTION else "")


def _told(each: Predicted) -> str:
    return amount(each.quantity, each.predicted) if each.is_told else f":gray[{each.trust.value}]"
