"""The router: one page a question, links at the top. Run by `stepscope dashboard`."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import access, clock, dialogs, header, replaying, session, states, style, width
from dashboard.session import Page
from dashboard.theme import logo
from dashboard.views import findings, overview, preemptions, recorder, requests, sql, steps, whatif
from telemetry.errors import StepscopeError

WAIT_SECONDS = 3  # how often an empty page looks whether something has been recorded


def _shown(draw: Callable[[Page], None], current: str) -> None:
    """Opens what the address names and draws one page of it."""
    try:
        page = session.open_page()
        if page is None:
            states.empty()
            clock.repeated(_wait_for_a_log, "log", WAIT_SECONDS)()
            return
        dialogs.begin()
        beside = header.draw(page, current)
        draw(page)
        with beside:
            replaying.follow(page)
    except StepscopeError as error:
        states.unreadable(error)


def _wait_for_a_log() -> None:
    try:
        found = session.open_page() is not None
    except StepscopeError:
        found = True  # the page says what is wrong
    if found:
        st.rerun(scope="app")


def show_overview() -> None:
    """The first page of an incident."""
    _shown(overview.draw, "overview")


def show_preemptions() -> None:
    """Why requests were thrown out, and who paid."""
    _shown(preemptions.draw, "preemptions")


def show_requests() -> None:
    """Who they are, and what happened to one of them."""
    _shown(requests.draw, "requests")


def show_steps() -> None:
    """The notable ones, and what the scheduler did in one of them."""
    _shown(steps.draw, "steps")


def show_whatif() -> None:
    """What to change, and what it costs."""
    _shown(whatif.draw, "whatif")


def show_findings() -> None:
    """What was found, what is well and what could not be judged; one of them as a report."""
    _shown(findings.draw, "findings")


def show_recorder() -> None:
    """What is recorded and what is not."""
    _shown(recorder.draw, "recorder")


def show_sql() -> None:
    """What no page answers."""
    _shown(sql.draw, "sql")


def show_first() -> None:
    """An address without a page means the first one.

    Trap: sending the reader on with `st.switch_page` takes back a click that comes meanwhile.
    """
    show_overview()


def main() -> None:
    """Draws the page that the address names."""
    st.set_page_config(page_title="Stepscope", layout="wide")
    st.logo(logo(session.theme()), size="large")
    pages = {
        "overview": st.Page(show_overview, title="Overview", url_path="overview"),
        "preemptions": st.Page(show_preemptions, title="Preemptions", url_path="preemptions"),
        "requests": st.Page(show_requests, title="Requests", url_path="requests"),
        "steps": st.Page(show_steps, title="Steps", url_path="steps"),
        "whatif": st.Page(show_whatif, title="What-if", url_path="whatif"),
        "findings": st.Page(show_findings, title="Findings", url_path="findings"),
        "recorder": st.Page(show_recorder, title="Recorder", url_path="recorder"),
        "sql": st.Page(show_sql, title="SQL", url_path="sql"),
    }
    st.session_state["pages"] = pages
    home = st.Page(show_first, title="Stepscope", default=True, visibility="hidden")
    chosen = st.navigation([home, *pages.values()], position="top")
    st.html(style.sheet(session.theme()))
    width.measure()
    if access.admit():
        chosen.run()


if __name__ == "__main__":
    main()
