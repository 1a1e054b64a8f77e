"""Dialogs that stay open until their reader closes them.

Streamlit closes a dialog when the page is drawn anew, and a page whose replay is still to come is
drawn anew when it is there. While a dialog is open that waits; when it is closed the page is drawn
again, with what is known by then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import streamlit as st

_OPEN = "dialog_is_open"
Args = ParamSpec("Args")


def dialog(title: str) -> Callable[[Callable[Args, None]], Callable[Args, None]]:
    """Makes a function draw a large dialog of this title when it is called."""

    def made(draw: Callable[Args, None]) -> Callable[Args, None]:
        @wraps(draw)
        def shown(*args: Args.args, **kwargs: Args.kwargs) -> None:
            st.session_state[_OPEN] = True
            draw(*args, **kwargs)

        return st.dialog(title, width="large", on_dismiss="rerun")(shown)

    return made


def begin() -> None:
    """A page is drawn from its beginning: no dialog is open yet."""
    st.session_state.pop(_OPEN, None)


def is_open() -> bool:
    """Whether this drawing of the page has opened one."""
    return bool(st.session_state.get(_OPEN))
