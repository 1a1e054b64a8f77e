"""Overview: is the scheduler the problem, and since when? The verdict first, then seven panels."""

from __future__ import annotations

import time

import streamlit as st

from dashboard import clock, drawing, header, picking, scraped, states, vega, verdict
from dashboard.session import Page
from diagnose.diagnosis import EngineDiagnosis
from telemetry.errors import StepscopeError

CHARTS_SECONDS = 2
VERDICT_SECONDS = 5
LAST_DIAGNOSIS = "last_diagnosis"


def draw(page: Page) -> None:
    """Draws the page; on a live log the verdict and the charts keep themselves up to date."""
    states.lost(page)
    clock.repeated(_verdict, "verdict", VERDICT_SECONDS if page.is_live else None)(page)
    is_moving = page.is_live and not page.is_pinned
    clock.repeated(_charts, "charts", CHARTS_SECONDS if is_moving else None)(page)


def _verdict(page: Page) -> None:
    """The verdict keeps running while a brushed window pauses the charts."""
    try:
        page = page.refreshed()
        engine = page.diagnosis()
        st.session_state[LAST_DIAGNOSIS] = engine
        st.session_state.pop("lost_since", None)
        states.interrupted(page)
        if engine is None or _is_blank(engine):
            states.idle(page)
            return
        _say(page, engine)
    except StepscopeError as error:
        _lost(page, error, VERDICT_SECONDS)


def _is_blank(engine: EngineDiagnosis) -> bool:
    """Whether nothing happened yet: there are no empty axes for that."""
    if engine.metrics is not None:
        return not engine.metrics.num_scrapes
    return not engine.steps.num_rows and not engine.accounting.num_requests


def _say(page: Page, engine: EngineDiagnosis) -> None:
    verdict.band(page, engine)
    if engine.metrics is not None:
        verdict.beside(page, engine)
        states.no_steps(engine.metrics)
        return
    verdict.strip(page, engine)


def _charts(page: Page) -> None:
    kept: tuple[Page, drawing.Drawing] | None = st.session_state.get("last_timeline")
    if kept is not None and kept[0].scope.engine != page.scope.engine:
        kept = None
    try:
        page = page.refreshed()
        engine = _recent_diagnosis(page)
        if engine is not None and engine.metrics is not None:
            scraped.draw(page, engine.metrics, "scrapes")
            return
        blank = engine is None or _is_blank(engine)
        shown = None if engine is None or blank else drawing.timeline_of(page, engine)
    except StepscopeError:
        if kept is None:
            return
        page, shown = kept
    if shown is None:
        return
    st.session_state["last_timeline"] = (page, shown)
    _draw_timeline(page, shown)


def _recent_diagnosis(page: Page) -> EngineDiagnosis | None:
    """Returns what the verdict was drawn from, at most 5 s ago; the panels count for themselves."""
    recent: EngineDiagnosis | None = st.session_state.get(LAST_DIAGNOSIS)
    if page.is_live and recent is not None and recent.scope.engine == page.scope.engine:
        return recent
    return page.diagnosis()


def _draw_timeline(page: Page, shown: drawing.Drawing) -> None:
    selected = vega.show_spec(shown.spec, key=_chart_key(page), selections=picking.SELECTIONS)
    with st.container(horizontal=True, horizontal_alignment="right"):
        header.links(page, shown.statements, "timeline")
    picking.follow(page, selected)


def _chart_key(page: Page) -> str:
    """Another window is another chart, without the brush; a live one stays the same chart."""
    moving = page.is_live and not page.is_pinned
    window = "live" if moving else f"{page.scope.start_ts}-{page.scope.end_ts}"
    return f"timeline-{page.scope.engine}-{page.theme}-{window}"


def _lost(page: Page, error: StepscopeError, every: int) -> None:
    since = st.session_state.setdefault("lost_since", time.time())
    states.disconnected(page, error, since, every)
