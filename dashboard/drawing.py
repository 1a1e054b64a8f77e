"""The timeline of overview and findings as it goes to the browser, kept from visit to visit.

To build seven panels takes longer than all else on the page. Of a closed log nothing changes from
one visitor to the next, so what was drawn once is kept, by the log's stamp, engine, window, theme
and width. Nothing is drawn here; `timeline_data` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard import source, vega
from dashboard.session import Page
from dashboard.timeline_data import build
from diagnose.diagnosis import EngineDiagnosis

MAX_DRAWINGS = 24
"""Each takes 0.7 MB: a chart has a few thousand points."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as Vega-Lite says it, its tables under `datasets`, and the statements behind it."""

    spec: dict[str, Any]
    statements: dict[str, str]


def timeline_of(page: Page, engine: EngineDiagnosis) -> Drawing:
    """Returns the panels of a page's window; those of a closed log are drawn once."""
    if page.is_live:
        return _draw(page, engine)
    scope, diagnosed = page.scope, engine.scope
    return _cached_drawing(
        str(page.path),
        source.stamp_of(page.path),
        (scope.engine, scope.start_ts, scope.end_ts),
        (diagnosed.start_ts, diagnosed.end_ts),
        page.theme,
        page.width,
        page,
        engine,
    )


@st.cache_data(show_spinner=False, max_entries=MAX_DRAWINGS)
def _cached_drawing(
    path: str,
    stamp: source.Stamp,
    window: tuple[int, int, int],
    diagnosed: tuple[int, int],
    theme: str,
    width: int,
    _page: Page,
    _engine: EngineDiagnosis,
) -> Drawing:
    return _draw(_page, _engine)


def _draw(page: Page, engine: EngineDiagnosis) -> Drawing:
    shown = build(page, engine)
    return Drawing(vega.spec_of(shown.chart), shown.statements)
