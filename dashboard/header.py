"""The header's chips: live or closed, engine, window; and the links that every chart has."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import address, asking, clock, session, source
from dashboard import links as to
from dashboard.dialogs import dialog
from dashboard.queries import header as queries
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from diagnose.words import duration, engine_hex, time_of_day, utc
from telemetry.errors import StepscopeError

LIVE_SECONDS = 2


def draw(page: Page, current: str) -> DeltaGenerator:
    """Draws the chips and returns the place beside them; on a live log they stay up to date."""
    every = LIVE_SECONDS if page.is_live and not page.is_pinned else None
    with st.container(key="header", horizontal=True, gap="small"):
        clock.repeated(_state_chip, "state", every)(page)
        _engine_chip(page)
        clock.repeated(_window_chip, "window", every)(page, current)
        return st.container(width="content")


def _state_chip(page: Page) -> None:
    if page.is_lost:
        st.button(":orange[▲] **Not live**", key="chip-lost")
        return
    if not page.is_live:
        day = utc(page.engine.first_ts).strftime("%Y-%m-%d")
        st.button(f"◼ **Closed log** {day}", key="chip-closed", type="secondary")
        return
    if page.is_pinned:
        moment = time_of_day(page.scope.end_ts, 0)
        if st.button(f":orange[●] **Live**, paused at {moment} · Resume", key="chip-resume"):
            _resume()
        return
    if not page.log.is_live:
        st.rerun(scope="app")  # its collector has ended: from now on it is a closed log
    try:
        page = page.refreshed()
        behind = session.behind_seconds(page)
    except StepscopeError:
        st.button(":orange[▲] **Not live**", key="chip-silent")
        return
    ended = page.engine.end_ts
    if ended is not None:
        st.button(f":gray[●] **Live log**, engine ended {time_of_day(ended, 0)}", key="chip-ended")
        return
    st.button(f":green[●] **Live**, {behind:.1f} s behind", key="chip-live")


def _resume() -> None:
    session.choose(from_=None, to=None)
    st.rerun(scope="app")


def _engine_chip(page: Page) -> None:
    label = in_markdown(session.engine_label(page.engine))
    with st.popover(f"engine **{label}**", key="chip-engine"):
        options = [start.engine for start in page.engines]
        labels = {
            start.engine: f"{session.engine_label(start)}  {utc(start.first_ts):%Y-%m-%d %H:%M:%S}"
            for start in page.engines
        }
        chosen = st.radio(
            "Engine start (UTC)",
            options,
            index=options.index(page.engine.engine),
            format_func=lambda engine: in_markdown(labels[engine], 80),
        )
        if chosen is not None and chosen != page.engine.engine:
            session.choose(engine=engine_hex(chosen), from_=None, to=None)
            st.rerun()
        _log_picker(page)


def _log_picker(page: Page) -> None:
    names = source.logs_below(source.root_log())
    if not names:
        return
    options = [None, *names]
    index = options.index(page.name) if page.name in options else 0
    chosen = st.radio("Log", options, index=index, format_func=lambda name: name or "as started")
    if chosen != page.name:
        session.choose(log=chosen, engine=None, from_=None, to=None)
        st.rerun()


def _window_chip(page: Page, current: str) -> None:
    page = _refreshed(page)
    steps = _num_steps(page)
    scope = page.scope
    digits = 1 if scope.duration_ns < 120e9 else 0
    first, last = time_of_day(scope.start_ts, digits), time_of_day(scope.end_ts, digits)
    counted = "no steps" if steps == "0" else f"{steps} steps"
    said = f"UTC **{first} – {last}** {duration(scope.duration_ns)} · {counted}"
    with st.popover(said, key="chip-window"):
        _window_form(page)
        st.caption("Link to this window, in absolute times")
        st.code(link_to(page, current), language=None)


def _refreshed(page: Page) -> Page:
    try:
        return page.refreshed()
    except StepscopeError:
        return page


def _num_steps(page: Page) -> str:
    try:
        return f"{int(page.row(queries.window(page.scope))['num_steps'] or 0):,}"
    except StepscopeError:
        return "–"


def _window_form(page: Page) -> None:
    start = st.text_input("From (UTC)", address.format_time(page.scope.start_ts))
    end = st.text_input("To (UTC)", address.format_time(page.scope.end_ts))
    use, whole = st.columns(2)
    if use.button("Look at this window"):
        wanted = address.parse_window({"from": start, "to": end})
        if wanted is None:
            st.error("From and to are UTC times like 2026-11-29T11:55:18.848Z, from before to.")
        else:
            choose_window(*wanted)
    if whole.button("Resume" if page.is_live else "Whole log"):
        _resume()


def choose_window(start_ts: int, end_ts: int) -> None:
    """Shows another window, and says so in the address."""
    session.choose(from_=address.format_time(start_ts), to=address.format_time(end_ts))
    st.rerun(scope="app")


OWN = {
    "requests": ("request",),
    "steps": ("step",),
    "whatif": ("set", "arrivals"),
    "findings": ("finding", "rule"),
    "sql": ("q", "sql", "of"),
}
"""Parts of the address that only one page knows; they go into its link."""
NUMBERS = ("request", "step")


def link_to(page: Page, current: str) -> str:
    """Returns the address of what is shown, with absolute times."""
    base = (st.context.url or "http://127.0.0.1").split("?")[0].rstrip("/")
    base = base.removesuffix(f"/{current}")
    return address.link(
        base,
        current,
        log=page.name,
        engine=page.scope.engine,
        start_ts=page.scope.start_ts,
        end_ts=page.scope.end_ts,
        own=_own(current),
    )


def _own(current: str) -> dict[str, str]:
    """Returns what only this page knows of the address; a number that is none is left out."""
    known = OWN.get(current, ())
    return {
        name: value
        for name, value in st.query_params.items()
        if (name in known or (current == "sql" and name.startswith(asking.PREFIX)))
        and (name not in NUMBERS or address.parse_request(value) is not None)
    }


# ---------------------------------------------------------------------- under charts and tables


def links(page: Page, statements: dict[str, str], key: str) -> None:
    """Draws *Show SQL*: the statements that produced a chart or table, with their answers."""
    if st.button("Show SQL", key=f"sql-{key}", type="tertiary"):
        _show_sql(page, statements)


@dialog("The statements behind it")
def _show_sql(page: Page, statements: dict[str, str]) -> None:
    names = list(statements)
    name = names[0]
    if len(names) > 1:
        name = st.selectbox("What", names) or names[0]
    st.code(statements[name], language="sql", wrap_lines=True)
    if st.button("Open in SQL", key="open-in-sql"):
        to.show("sql", sql=statements[name])
    try:
        answer: pd.DataFrame = page.ask(statements[name])
    except StepscopeError as error:
        st.error(in_markdown(str(error), 400))
        return
    st.caption(f"{len(answer):,} rows")
    st.dataframe(answer.head(500), hide_index=True)
