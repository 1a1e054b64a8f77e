"""Steps: what exactly did the scheduler do here? The notable ones, and the way to one of them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import address, clock, header, links, one_step, states
from dashboard.one_step import NAME, go_to
from dashboard.queries import header as window_queries
from dashboard.queries import steps as queries
from dashboard.queries.steps import Notable
from dashboard.session import Page
from dashboard.style import ROW_PX, table_height
from diagnose.words import NOT_MEASURED, plural
from telemetry.errors import StepscopeError

EVERY_SECONDS = 5
STEP_PX = 240
KINDS = {
    Notable.EVICTED: "Most evictions",
    Notable.LONGEST: "Longest",
    Notable.NOTHING: "Nothing scheduled",
    Notable.SHORT: "Shortest of blocks",
}
NONE_OF_KIND = {
    Notable.EVICTED: "Nobody was evicted in this window.",
    Notable.LONGEST: "No step of this window has its end on record.",
    Notable.NOTHING: "Whenever somebody waited, something was scheduled.",
    Notable.SHORT: "The queue head was never short of blocks.",
}


def draw(page: Page) -> None:
    """Draws the step that the address names, or the list of the notable ones."""
    states.lost(page)
    number = address.parse_request(links.taken(NAME))
    is_moving = page.is_live and not page.is_pinned
    try:
        if number is not None:
            if not one_step.draw(page, number):
                _nothing(page)
            return
        states.interrupted(page)
        clock.repeated(_list, "notable", EVERY_SECONDS if is_moving else None)(page)
    except StepscopeError as error:
        states.unreadable(error)


# --------------------------------------------------------------------------------------- the list


def _list(page: Page) -> None:
    page = page.refreshed()
    if not page.row(window_queries.window(page.scope))["num_rows"]:
        _nothing(page)
        return
    st.markdown("### Steps worth a look, the most notable first")
    with st.container(horizontal=True, horizontal_alignment="distribute"):
        kind = st.segmented_control(
            "Notable for",
            list(KINDS),
            default=Notable.EVICTED,
            format_func=KINDS.__getitem__,
            key="by",
            width="content",
        )
        number = st.number_input(
            "Step",
            min_value=0,
            value=None,
            step=1,
            key="go",
            placeholder="a step's number",
            width=STEP_PX,
        )
    if number is not None:
        go_to(int(number))
    _table(page, kind or Notable.EVICTED)


def _nothing(page: Page) -> None:
    """Says why there are no steps: a source of scrapes, or an engine that has done nothing yet."""
    engine = page.diagnosis()
    if engine is not None and engine.metrics is not None:
        st.markdown("### No step is in a scrape")
        states.no_steps(engine.metrics)
        return
    states.idle(page)


def _table(page: Page, kind: Notable) -> None:
    statement = queries.notable(page.scope, kind)
    rows = page.ask(statement)
    if rows.empty:
        st.caption(NONE_OF_KIND[kind])
        header.links(page, {KINDS[kind]: statement}, "notable")
        return
    total = int(rows["num_all"].iloc[0])
    said = f"Showing {len(rows):,} of {plural(total, 'step')}, {KINDS[kind].lower()} first."
    st.caption(f"{said} Choose a row to see what the scheduler did there.")
    told = st.dataframe(
        rows.drop(columns="num_all"),
        hide_index=True,
        height=table_height(len(rows), most=620),
        row_height=ROW_PX,
        column_config=_columns(),
        on_select="rerun",
        selection_mode="single-row",
        key=f"notable-{kind.name}",
        placeholder=NOT_MEASURED,
        alt=said,
    )
    header.links(page, {KINDS[kind]: statement}, "notable")
    if told.selection.rows:
        go_to(int(rows.iloc[told.selection.rows[0]]["step"]))


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "step": number("step", format="localized"),
        "time": st.column_config.TextColumn("time, UTC"),
        "took_ms": number("took, ms", format="%.1f"),
        "num_repeats": number("steps like it", format="localized"),
        "num_running": number("running", format="localized"),
        "num_waiting": number("waiting", format="localized"),
        "num_preempted": number("evicted", format="localized"),
        "num_scheduled_tokens": number("tokens", format="localized"),
        "num_blocks_free": number("free blocks", format="localized"),
        "head_blocks_needed": number("head needs", format="localized"),
        "stop_reason": st.column_config.TextColumn("admission stopped"),
    }
