"""How wide the page is: asked of the browser, since charts of many panels cannot stretch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import streamlit as st

from dashboard import session, style

ROUND_TO = 8
MAX_WAIT_MS = 5_000
"""How long a report waits at most for the page that was asked for. Trap: one that is sent between a
click on a link and the new page names the old page, and takes the reader back to it."""
_SCRIPT = """
export default function (component) {
  const main = document.querySelector('[data-testid="stMainBlockContainer"]');
  if (!main) { return; }
  let told = component.data.width;  // drawn for this: to report it would draw it twice
  let timer = null;
  let leaving = null;
  const clicked = (event) => {
    const link = event.target.closest('a[href]');
    if (!link || link.target === '_blank' || link.pathname === location.pathname) { return; }
    leaving = { path: location.pathname, until: performance.now() + MAX_WAIT_MS };
  };
  const isLeaving = () =>
    leaving && location.pathname === leaving.path && performance.now() < leaving.until;
  const tell = () => {
    if (isLeaving()) { later(); return; }
    const style = getComputedStyle(main);
    if (!style.getPropertyValue('STYLED')) { later(); return; }
    const inner = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const width = Math.floor(inner / ROUND_TO) * ROUND_TO;
    if (width <= 0) { return; }
    document.cookie = `COOKIE=${width}; path=/; max-age=31536000; SameSite=Strict`;
    if (width !== told) { told = width; component.setStateValue('width', width); }
  };
  const later = () => { clearTimeout(timer); timer = setTimeout(tell, 150); };
  const observer = new ResizeObserver(later);
  observer.observe(main);
  document.addEventListener('click', clicked, true);
  tell();
  return () => {
    document.removeEventListener('click', clicked, true);
    observer.disconnect();
    clearTimeout(timer);
  };
}
"""
_NAMES = {
    "ROUND_TO": str(ROUND_TO),
    "MAX_WAIT_MS": str(MAX_WAIT_MS),
    "COOKIE": session.WIDTH_COOKIE,
    "STYLED": style.STYLED,
}


def _script() -> str:
    script = _SCRIPT
    for name, value in _NAMES.items():
        script = script.replace(name, value)
    return script


@cache
def _component() -> Callable[..., Any]:
    return st.components.v2.component("stepscope.page_width", js=_script())


def measure() -> None:
    """Keeps the session's width at what the browser says, in pixels.

    The browser is told what the page is drawn for, and answers only where that is another width.
    """
    with st.container(key="measure", height="content"):
        told = _component()(
            key="page_measure",
            data={"width": session.page_width()},
            default={"width": None},
            on_width_change=_told,
        )
    if told.width:
        st.session_state[session.WIDTH] = int(told.width)


def _told() -> None:
    """A change of width runs the page again; that is all."""
