"""The chart of a window of which only scrapes are known: what each of them told."""

from __future__ import annotations

import streamlit as st

from dashboard import header, vega
from dashboard.charts.axis import TimeAxis
from dashboard.charts.scrapes import scraped_load
from dashboard.queries import scrapes
from dashboard.session import Page
from dashboard.timeline_data import SIDE_SPACE
from diagnose.scrapes.metric_facts import MetricFacts

MIN_WIDTH = 480
"""Pixels; a narrower page is scrolled."""


def draw(page: Page, facts: MetricFacts, key: str) -> None:
    """Draws what scrapes show of the window, each scrape a point; says so where there is none."""
    if facts.source is None:
        st.caption("– not measured: no step record and no scrape in this window")
        return
    statement = scrapes.load(page.scope, facts.source)
    width = max(MIN_WIDTH, page.width - SIDE_SPACE)
    axis = TimeAxis(page.scope.start_ts, page.scope.end_ts, page.theme, width=width)
    chart = scraped_load(page.ask(statement), axis)
    vega.show(chart, key=f"{key}-{page.theme}")
    with st.container(horizontal=True, horizontal_alignment="right"):
        header.links(page, {"Scrapes": statement}, key)
