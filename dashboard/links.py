"""From page to page: what an address carries along, and how a row of a table leads on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import streamlit as st

from dashboard import address
from diagnose.words import engine_hex

if TYPE_CHECKING:
    from dashboard.session import Page


def show_step(number: int) -> None:
    """Goes to one step."""
    show("steps", step=str(number))


def show(name: str, **own: str) -> None:
    """Goes to a page, with parts of its address that only it knows."""
    for key, value in own.items():
        st.session_state[f"address_{key}"] = value
    st.switch_page(st.session_state["pages"][name])


def taken(key: str) -> str | None:
    """Returns a part of the address that only one page knows, put there by `show` or pasted."""
    stored = st.session_state.pop(f"address_{key}", None)
    if stored is not None:
        st.query_params[key] = stored
    return st.query_params.get(key)


def path(page: Page, name: str, **own: str) -> str:
    """Returns the relative address of a page that shows the same log, engine and window."""
    parameters = dict(own)
    if page.name is not None:
        parameters["log"] = page.name
    parameters["engine"] = engine_hex(page.scope.engine)
    if page.is_pinned:
        parameters["from"] = address.format_time(page.scope.start_ts)
        parameters["to"] = address.format_time(page.scope.end_ts)
    return f"./{name}?{urlencode(parameters)}"


def step_link(page: Page, number: int, text: str | None = None) -> str:
    """Returns a step as a link in markdown."""
    return f"[{text or f'step {number:,}'}]({path(page, 'steps', step=str(number))})"
