"""What a hand on a timeline means: a drag over the arrivals is a window, a click is a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import address, header, links, session
from dashboard.charts.load import BRUSH
from dashboard.charts.marks import PICKED
from dashboard.session import Page

SELECTIONS = (BRUSH, PICKED)
"""Selections that a timeline tells of."""
MIN_BRUSH_MS = 1.0
"""A shorter brush is a slip of the hand."""


def follow(page: Page, selected: Mapping[str, Any], *, to: str | None = None) -> None:
    """Follows a drag or a click on a timeline of the page's window.

    Args:
        page: what the timeline shows.
        selected: what is selected in it.
        to: the page that shows the window that was dragged; the present one where None.
    """
    _follow_brush(page, selected, to)
    _follow_click(selected)


def _follow_brush(page: Page, selected: Mapping[str, Any], to: str | None) -> None:
    chosen = selected.get(BRUSH, {}).get("x")
    if not chosen or chosen[1] - chosen[0] < MIN_BRUSH_MS:
        return
    if st.session_state.get("last_brush") == chosen:
        return
    st.session_state["last_brush"] = chosen
    start, end = (page.scope.start_ts + int(moment * 1e6) for moment in chosen)
    if to is None:
        header.choose_window(start, end)
    session.choose(from_=address.format_time(start), to=address.format_time(end))
    st.switch_page(st.session_state["pages"][to])


def _follow_click(selected: Mapping[str, Any]) -> None:
    """A click into a panel opens the step there; the same click is followed once."""
    chosen = selected.get(PICKED) or []
    is_new = chosen != st.session_state.get("last_pick", [])
    st.session_state["last_pick"] = chosen
    if chosen and is_new:
        links.show_step(int(chosen[0]["step"]))
