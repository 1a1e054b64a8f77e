"""Requests: the list, worst first; and what happened to one of them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import address, clock, header, links, picking, states, story, story_data, vega
from dashboard.charts.marks import PICKED
from dashboard.queries import requests as queries
from dashboard.session import Page
from dashboard.style import ROW_PX, table_height
from dashboard.untrusted import in_markdown
from diagnose.words import NOT_MEASURED
from telemetry.errors import StepscopeError

EVERY_SECONDS = 5
NAME = "request"
FIND_PX = 460


def draw(page: Page) -> None:
    """Draws the story of the request that the address names, or the list."""
    states.lost(page)
    states.interrupted(page)
    number = _wanted()
    is_moving = page.is_live and not page.is_pinned
    every = EVERY_SECONDS if is_moving else None
    try:
        engine = page.diagnosis()
        if engine is not None and engine.metrics is not None:
            st.markdown("### No request is in a scrape")
            states.no_steps(engine.metrics)
        elif number is None:
            _list(page)
        else:
            clock.repeated(_story, "story", every)(page, number)
    except StepscopeError as error:
        states.unreadable(error)


def _wanted() -> int | None:
    stored = st.session_state.pop("address_request", None)
    if stored is not None:
        st.query_params[NAME] = stored
    return address.parse_request(st.query_params.get(NAME))


# --------------------------------------------------------------------------------------- the list


def _list(page: Page) -> None:
    st.markdown("### Requests, worst first")
    pattern = st.text_input(
        "Find by number or id",
        key="find",
        placeholder="60, or a part of the caller's id",
        width=FIND_PX,
    ).strip()[:100]
    statement = queries.worst_first(page.scope)
    rows = page.ask(statement, {"pattern": pattern})
    if rows.empty:
        st.caption("No request in this window has that number or id.")
        return
    total = int(rows["num_all"].iloc[0])
    said = f"Showing {len(rows):,} of {total:,} requests, worst first."
    st.caption(f"{said} Choose a row to read its story.")
    told = st.dataframe(
        _whole_ms(rows.drop(columns="num_all")),
        hide_index=True,
        height=table_height(len(rows), most=620),
        row_height=ROW_PX,
        column_config=_columns(),
        on_select="rerun",
        selection_mode="single-row",
        key="requests",
        placeholder=NOT_MEASURED,
        alt=said,
    )
    literal = statement.replace("$pattern", "'" + pattern.replace("'", "''") + "'")
    header.links(page, {"Requests": literal}, "requests")
    if told.selection.rows:
        _go_to(int(rows.iloc[told.selection.rows[0]]["request"]))


def _whole_ms(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows with their times in whole milliseconds; what is not known stays unknown."""
    times = [name for name in rows.columns if name.endswith("_ms")]
    return rows.assign(**{name: rows[name].round().astype("Int64") for name in times})


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "request": number("request", format="%d"),
        "request_id": st.column_config.TextColumn("its id"),
        "arrived": st.column_config.TextColumn("arrived, UTC"),
        "num_prompt_tokens": number("prompt", format="localized"),
        "num_output_tokens": number("output", format="localized"),
        "priority": number("priority", format="%d"),
        "times": number("preempted", format="%d"),
        "tokens_lost": number("tokens lost", format="localized"),
        "longest_pause_ms": number("longest pause, ms", format="localized"),
        "queued_ms": number("queued, ms", format="localized"),
        "first_token_ms": number("first token, ms", format="localized"),
        "end_to_end_ms": number("end to end, ms", format="localized"),
        "ended": st.column_config.TextColumn("ended"),
    }


def _go_to(number: int | None) -> None:
    if number is None:
        st.query_params.pop(NAME, None)
    else:
        st.query_params[NAME] = str(number)
    st.rerun(scope="app")


# -------------------------------------------------------------------------------------- one story


def _neighbours(number: int) -> None:
    with st.container(horizontal=True, horizontal_alignment="right", key="steps-of-list"):
        if st.button("All requests", key="all"):
            _go_to(None)
        if st.button(f"‹ {number - 1}", key="before", disabled=number == 0):
            _go_to(number - 1)
        if st.button(f"{number + 1} ›", key="after"):
            _go_to(number + 1)


def _story(page: Page, number: int) -> None:
    engine = page.scope.engine
    found = _rows(page.ask(queries.one(engine, number)))
    said, steps = st.columns([4, 1.2])
    with steps:
        _neighbours(number)
    if not found:
        said.markdown(f"### There is no request {number:,} in this engine start.")
        return
    request = found[0]
    losses = _rows(page.ask(queries.losses(engine, number)))
    intervals = _rows(page.ask(queries.intervals(engine, number)))
    said.markdown(f"### {in_markdown(story.headline(request, losses), 200)}")
    said.markdown(f":gray[{_facts(request)}]")
    _figures(request, losses, intervals)
    _charts(page, request)
    _table(page, number, request, losses)


def _facts(request: dict[str, Any]) -> str:
    output = request["num_output_tokens"]
    parts = [
        f"prompt {request['num_prompt_tokens']:,}"
        + (f", output {output:,} tokens" if output is not None else " tokens"),
        f"priority {request['priority'] if request['priority'] is not None else '–'}",
        f"id {in_markdown(request['request_id'], 60)}",
    ]
    if request["finish_reason"]:
        parts.append(f"finished: {in_markdown(request['finish_reason'])}")
    if request["error_text"]:
        parts.append(in_markdown(request["error_text"], 200))
    return " &nbsp;·&nbsp; ".join(parts)


def _figures(
    request: dict[str, Any], losses: list[dict[str, Any]], intervals: list[dict[str, Any]]
) -> None:
    with st.container(border=True, key="figures"):
        for column, figure in zip(
            st.columns(6), story.figures(request, losses, intervals), strict=True
        ):
            column.markdown(f"#### {figure.value}\n:gray[{in_markdown(figure.name)}]")


def _charts(page: Page, request: dict[str, Any]) -> None:
    """Draws the request's life and the engine meanwhile; a live one is drawn anew as it goes on."""
    drawn = story_data.build(page, request)
    if drawn is None:
        return
    key = f"story-chart-{page.scope.engine}-{request['request']}-{page.theme}"
    selected = vega.show(drawn.chart, key=key, selections=(PICKED,))
    with st.container(horizontal=True, horizontal_alignment="right"):
        header.links(page, drawn.statements, "story-chart")
    picking.follow(drawn.page, selected)


def _table(page: Page, number: int, request: dict[str, Any], losses: list[dict[str, Any]]) -> None:
    statement = queries.story(page.scope.engine, number)
    lost_ts = page.engine.end_ts if page.engine.is_interrupted else None
    lines = story.lines(_rows(page.ask(statement)), losses, request, lost_ts)
    with st.container(border=True, key="card-story"):
        st.markdown("**Its story**")
        with st.container(key="story"):
            st.table(
                [
                    {
                        "time (UTC)": in_markdown(line.time),
                        "what": f"**{in_markdown(line.what)}**",
                        "why": in_markdown(line.why, 200),
                        "cost": in_markdown(line.cost),
                        "step": "" if line.step is None else links.step_link(page, line.step),
                    }
                    for line in lines
                ],
                border="horizontal",
                hide_index=True,
            )
        statements = {
            "Its story": statement,
            "Its preemptions": queries.losses(page.scope.engine, number),
            "Stretches of its life": queries.intervals(page.scope.engine, number),
        }
        header.links(page, statements, "story")


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns a frame's rows with None for NULL and whole numbers as such."""
    return [
        {name: _plain(value) for name, value in row.items()} for row in frame.to_dict("records")
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, list | dict) or (hasattr(value, "__len__") and not isinstance(value, str)):
        return value
    if pd.isna(value):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value
