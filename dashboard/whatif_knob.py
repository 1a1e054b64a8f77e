"""The What-if page's knob: which setting, which value, how clients behave; each in the address."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import links, whatif_data
from dashboard.replays import DETECTED
from dashboard.untrusted import in_markdown
from dashboard.whatif_data import SCAN_REPLAYS, SCANNED, Course
from diagnose.replay.prediction import NUM_REPLAYS
from diagnose.replay.smallest import MAX_TRIED, SEARCHED
from diagnose.replay.step_times import DECODES
from diagnose.replay.whatif_words import clients_text, value_text
from diagnose.replay.workload import Workload

SET, ARRIVALS = "set", "arrivals"
AS_DETECTED = "as detected"
MAX_STEPS = 400_000
"""Recorded steps times replays that are replayed without being asked for: about a minute."""
NUM_UNASKED = NUM_REPLAYS + MAX_TRIED * SCAN_REPLAYS + NUM_REPLAYS
MAX_CLIENTS = 10_000
ENOUGH = 0.8
"""Share of the preemptions that the value chosen at first removes."""

Choice = tuple[str, Any]
"""A setting and a value, as an address names them."""


def asked_for() -> Choice | None:
    """Returns what the address asks for."""
    return whatif_data.choice_of(links.taken(SET))


def setting(choice: Choice | None) -> str:
    """Draws which setting is changed; the address' own comes first."""
    named = choice[0] if choice is not None and choice[0] in SCANNED else SEARCHED[0]
    names = list(dict.fromkeys([*SEARCHED, named, *SCANNED]))
    chosen = st.selectbox("Setting", names, index=names.index(named), key="whatif-setting")
    return chosen or named


def clients(workload: Workload) -> str:
    """Draws how clients behave, as detected until somebody knows better; returns it."""
    found = workload.clients
    other = "open" if found.kind == "closed" else "closed"
    told = {
        DETECTED: f"{clients_text(found)}, {AS_DETECTED}",
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
    if chosen == DETECTED or chosen is None:
        st.query_params.pop(ARRIVALS, None)
        return DETECTED
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


def may_replay(workload: Workload) -> bool:
    """Says how long it takes where it takes long; returns whether it is wanted all the same."""
    work = workload.step_times.num_steps * NUM_UNASKED
    if work <= MAX_STEPS:
        return True
    st.caption(
        f"This window has {workload.step_times.num_steps:,} steps, and a course takes "
        f"{NUM_UNASKED} replays of it. A shorter window is quicker."
    )
    return st.toggle("Replay it all the same", key="whatif-long")


def value(course: Course, choice: Choice | None, workload: Workload) -> Any:
    """Draws the values of a setting; returns the chosen one, and puts it into the address."""
    wanted = whatif_data.asked(choice, workload).get(course.name, _suggested(course))
    values = whatif_data.ordered([*course.values, wanted])
    label = f"{course.name}, recorded {value_text(course.now)}"
    if len(values) < 2:
        st.caption(f"{course.name} has no other value that these settings allow.")
        return course.now
    key = f"whatif-value-{course.name}"
    if course.is_number:
        chosen = st.select_slider(label, values, value=wanted, format_func=value_text, key=key)
    else:
        index = values.index(wanted)
        chosen = st.radio(label, values, index=index, format_func=value_text, key=key)
    st.query_params[SET] = whatif_data.address_of(course.name, chosen)
    return chosen


def _suggested(course: Course) -> Any:
    """Returns the mildest value that removes enough of the preemptions; else the last tried.

    Where there are none, it is the value that is set: there is nothing to remove.
    """
    if not any(each.of("num_preemptions").replayed for each in course.predictions):
        return course.now
    for prediction in course.predictions:
        change = prediction.of("num_preemptions").change
        if change is not None and change <= -ENOUGH:
            return prediction.changes[0].after
    return course.predictions[-1].changes[0].after if course.predictions else course.now
