"""The What-if page's four charts: how a quantity goes with a setting, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard import colours, vega, whatif_data
from dashboard.charts.course import CourseLook, course_chart
from dashboard.colours import Colour
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from dashboard.whatif_data import CHARTED, Course
from diagnose.replay.prediction import Predicted, Prediction, Trust
from diagnose.replay.whatif_words import amount, value_text, why_withheld
from diagnose.words import signed_percent

MAIN = 0.71
"""Part of the page's width that the charts have."""
INSIDE = 62
AXES = 66
"""Pixels beside a plot for its axis and margins."""
STACKED_BELOW = 1120
TINTS: dict[str, Colour] = {
    "num_preemptions": colours.EVICTED,
    "longest_pause_p95": colours.LOST,
    "ttft_p95": colours.USEFUL,
    "output_tokens_per_second": colours.PREFILL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """A course with the value that was chosen on it."""

    course: Course
    value: Any
    prediction: Prediction


def draw(page: Page, course: Course, value: Any, prediction: Prediction) -> None:
    """Draws the charts, two in a row where there is room."""
    whole = page.width if page.width < STACKED_BELOW else int(page.width * MAIN)
    is_narrow = whole < 640
    width = max(220, (whole - INSIDE) // (1 if is_narrow else 2) - AXES)
    chosen = _Chosen(course=course, value=value, prediction=prediction)
    with st.container(border=True, key="card-whatif-courses"):
        st.caption(f"◇ recorded &nbsp; ● replayed &nbsp; │ chosen &nbsp; x: {course.name}")
        columns = [st.container()] if is_narrow else st.columns(2, gap="small")
        for number, (name, fact) in enumerate(CHARTED.items()):
            with columns[number % len(columns)]:
                _one(page, chosen, name, fact, width)


def _one(page: Page, chosen: _Chosen, name: str, fact: str, width: int) -> None:
    course, value = chosen.course, chosen.value
    points = whatif_data.points_of(course, name, chosen.prediction)
    each = chosen.prediction.of(name)
    if points.empty:
        st.markdown(f"**{each.quantity.label}** :gray[– {in_markdown(why_withheld(each))}]")
        return
    look = CourseLook(
        title=each.quantity.label[:1].upper() + each.quantity.label[1:],
        fact=_fact(each, fact),
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
    vega.show(chart, key=key)


def _fact(each: Predicted, fact: str) -> str:
    return {
        Trust.FINE: fact,
        Trust.DIRECTION: "▲ direction only",
        Trust.WITHHELD: f"withheld: replay {signed_percent(each.error or 0.0)} off the record",
        Trust.NOT_MEASURED: "– not in the record: no back-test",
    }[each.trust]
