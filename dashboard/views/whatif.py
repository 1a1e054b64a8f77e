"""What-if: what do I change, and what will it cost me? The recorded load, scheduled again."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import states, whatif_courses, whatif_data, whatif_hand_on, whatif_knob
from dashboard.replays import DETECTED, Load, read_load
from dashboard.session import Page
from dashboard.untrusted import in_markdown, prose_in_markdown
from dashboard.whatif_courses import MAIN
from dashboard.whatif_data import CHARTED, SCAN_REPLAYS, Course
from diagnose.incident.predictions import WhatIf
from diagnose.reading import Scope
from diagnose.replay.measures import Quantity
from diagnose.replay.prediction import NUM_REPLAYS, Predicted, Prediction, Trust
from diagnose.replay.rows import ReplayError
from diagnose.replay.smallest import Step
from diagnose.replay.whatif_words import (
    amount,
    changes_of,
    clients_text,
    flags_of,
    headline,
    value_text,
)
from diagnose.replay.workload import Workload
from diagnose.words import plural, signed_percent, time_of_day
from telemetry.errors import StepscopeError

ENOUGH_FOR_SECONDS = 0.1
"""Seconds from which a time is told in them everywhere."""
SMALLEST = 0.01
"""Seconds that a column tells apart from none."""
GOALS = {0.5: "half", 0.8: "80 %", 1.0: "all"}
SIGNS = {
    Trust.FINE: ":green[✓]",
    Trust.DIRECTION: ":orange[▲]",
    Trust.WITHHELD: ":red[✕]",
    Trust.NOT_MEASURED: ":gray[–]",
}


def draw(page: Page) -> None:
    """Draws the page. Nothing on it moves: a live log is replayed as it was when it was opened."""
    states.lost(page)
    try:
        if page.diagnosis() is None:
            states.empty()
            return
        _page(page, _as_opened(page))
    except ReplayError as error:
        why = str(error)
        st.markdown("### This window cannot be replayed")
        states.not_measured(
            "whatif",
            "what a change would do",
            f"{prose_in_markdown(why[:1].upper() + why[1:])}.",
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
    detected = read_load(page, scope, DETECTED)  # first: nothing is drawn where it cannot be
    head = st.container()
    side, main = st.columns([1 - MAIN, MAIN], gap="small")
    with side, st.container(border=True, key="card-whatif-knob"):
        st.markdown("**Change one setting**")
        choice = whatif_knob.asked_for()
        name = whatif_knob.setting(choice)
        clients = whatif_knob.clients(detected.workload)
        load = read_load(page, scope, clients)
        if not whatif_knob.may_replay(load.workload):
            return
        course = load.course(name)
        value = whatif_knob.value(course, choice, load.workload)
    prediction = load.prediction(name, value)
    with head:
        _headline(course, value, prediction, load.workload)
    with side:
        _trust(prediction)
    with main:
        whatif_courses.draw(page, course, value, prediction)
    chosen = WhatIf(scope=scope, prediction=prediction) if value != course.now else None
    _smallest(page, load, chosen)


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


# -------------------------------------------------------------------------------------- the trust


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
    error = "–" if each.error is None else _signed(each.error)
    return {
        "quantity": each.quantity.label,
        "recorded": _amount(each.quantity, each.recorded),
        "replayed": _amount(each.quantity, each.replayed),
        "error": f"{SIGNS[each.trust]} {error}",
    }


# ---------------------------------------------------------------------------- the smallest changes


def _smallest(page: Page, load: Load, chosen: WhatIf | None) -> None:
    with st.container(border=True, key="card-whatif-smallest"):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            st.markdown(
                "**Smallest change, of those tried, that removes half, 80 %, all**",
                width="content",
            )
            if chosen is not None:
                whatif_hand_on.draw(page, chosen)
        whatif_hand_on.say_what_is_in(page)
        steps = load.smallest()
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
        "preemptions": "–" if change is None else _signed(change),
        **{_heading(prediction.of(name)): _told(prediction.of(name)) for name in list(CHARTED)[1:]},
        "needs": step.needs,
    }


def _heading(each: Predicted) -> str:
    return each.quantity.label + (" ▲" if each.trust is Trust.DIRECTION else "")


def _told(each: Predicted) -> str:
    return _amount(each.quantity, each.predicted) if each.is_told else f":gray[{each.trust.value}]"


def _amount(quantity: Quantity, value: float | None) -> str:
    """Returns a value as it stands in a column: its times all in seconds, to be compared."""
    if value is None or quantity.unit != "s" or value >= ENOUGH_FOR_SECONDS:
        return amount(quantity, value)
    return f"{value:.2f} s" if value >= SMALLEST or value == 0 else f"< {SMALLEST} s"


def _signed(ratio: float) -> str:
    return signed_percent(ratio).replace("-", "−")
