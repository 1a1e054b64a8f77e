"""The cards of one step: evictions, the batch, where the time went, who waits, who was served."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import step_words, vega
from dashboard.charts.phases import phase_bar
from dashboard.session import Page
from dashboard.starts import one_row
from dashboard.style import ROW_PX, table_height
from dashboard.untrusted import in_markdown
from diagnose.words import NOT_MEASURED, count, duration, plural
from telemetry.step_facts import StepFacts
from telemetry.vocabulary import StopReason

MAX_LINES = 200
INSIDE = 46
"""Pixels of a column that are not its card's content."""
STACKED_BELOW = 1120


def evictions(facts: StepFacts) -> None:
    """Draws who asked and who paid, in order."""
    lines = step_words.evictions(facts)
    with st.container(border=True, key="card-evictions"):
        st.markdown(f"**{plural(len(lines), 'eviction')}, in order**")
        st.caption(step_words.rules(facts))
        if len(lines) > MAX_LINES:
            st.caption(f"Showing {MAX_LINES:,} of {len(lines):,}, the first ones.")
        with st.container(key="evictions", height=420 if len(lines) > 10 else "content"):
            st.table(lines[:MAX_LINES], border="horizontal", hide_index=True)


def batch(page: Page, facts: StepFacts, statement: str) -> None:
    """Draws what the step ran, beside the state it began with: `statement` has that."""
    before = page.ask(statement)
    state = None if before.empty else one_row(before)
    if state is not None:
        state = {k: int(v) if isinstance(v, float) else v for k, v in state.items()}
    with st.container(border=True, key="card-batch"):
        st.markdown("**The batch**")
        with st.container(key="batch"):
            st.table(
                [
                    {" ": f":gray[{name}]", "  ": value}
                    for name, value in step_words.batch_numbers(facts, state)
                ],
                border="horizontal",
                hide_index=True,
            )


def time(page: Page, facts: StepFacts, share: float) -> None:
    """Draws where the time of the step went, on `share` of the page."""
    parts = step_words.phases(facts)
    took = duration(step_words.took_ns(facts))
    with st.container(border=True, key="card-time"):
        if not parts:
            st.markdown("**Where the time went**")
            st.markdown(f":gray[{NOT_MEASURED} not measured: the phases of this step]")
            return
        st.markdown(f"**Where the {took} went**")
        width = page.width if page.width < STACKED_BELOW else int(page.width * share)
        chart = phase_bar(parts, width=max(200, width - INSIDE), theme=page.theme)
        vega.show(chart, key=f"phases-{facts.asked}-{page.theme}-{width}")
        st.markdown(" &nbsp; ".join(f":gray[{name}] **{duration(ns)}**" for name, ns in parts))


def waiting(page: Page, facts: StepFacts, statement: str) -> None:
    """Draws who waits after the step and why: `statement` has them."""
    step = facts.step
    with st.container(border=True, key="card-waiting"):
        st.markdown(f"**Waiting after this step: {count(step['num_waiting'])}**")
        rows = page.ask(statement) if step["num_waiting"] else pd.DataFrame()
        if not rows.empty:
            total = int(rows["num_all"].iloc[0])
            if total > len(rows):
                st.caption(f"Showing {len(rows):,} of {total:,} requests.")
            _who_waits(rows, step["head_request"])
        st.caption(step_words.waiting_line(facts))


def _who_waits(rows: pd.DataFrame, head: int | None) -> None:
    told = rows.astype({"wait_reason": object}).to_dict("records")
    lines = step_words.grouped([{str(k): v for k, v in row.items()} for row in told], head)
    with st.container(key="waiting", height=360 if len(lines) > 9 else "content"):
        st.table(
            [
                {
                    "request": step_words.who(line, head),
                    "reason": reason(line["wait_reason"]),
                    "evicted": _times(line),
                }
                for line in lines
            ],
            border="horizontal",
            hide_index=True,
        )


def reason(name: Any) -> str:
    """Returns the engine's own word for why; the one that a preemption costs has its colour."""
    if name is None or pd.isna(name):
        return f":gray[{NOT_MEASURED} not recorded]"
    shown = f"**{in_markdown(str(name))}**"
    return f":violet[{shown}]" if name == StopReason.preempted_this_step.name else shown


def _times(line: dict[str, Any]) -> str:
    times = plural(int(line["times"]), "time")
    return times if line["num"] == 1 else f"{times} each"


def served(facts: StepFacts) -> None:
    """Draws the order in which the scheduler served, where it is recorded."""
    lines = step_words.served(facts)
    title = "In the order in which the scheduler served them"
    if not lines:
        lines = step_words.let_in(facts)
        title = "Let in, in order"
    if not lines:
        return
    with st.container(border=True, key="card-served"):
        st.markdown(f"**{title}: {plural(len(lines), 'request')}**")
        number = st.column_config.NumberColumn
        names = [name for name in lines[0] if name not in ("request", "note")]
        st.dataframe(
            pd.DataFrame(lines),
            hide_index=True,
            height=table_height(len(lines), most=460),
            row_height=ROW_PX,
            column_config={"request": number("request", format="%d")}
            | {name: number(name, format="localized") for name in names},
            placeholder=NOT_MEASURED,
            alt=f"{title}: {plural(len(lines), 'request')}",
        )
