"""What the list of findings and the page of one share: their cards, badges and stored lives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from dashboard import colours
from dashboard.session import Page
from dashboard.style import MARKDOWN_COLOURS, SEVERITY_WORDS
from diagnose.finding import Severity
from diagnose.life import FindingState, is_closed
from diagnose.life.said import Lives, read_lives

SENTENCE = 400
"""Characters of a sentence from the log that are shown."""
STACKED = [0.5, 0.5]
"""Two columns, which stand under each other on a narrow page."""


def badge(severity: Severity) -> str:
    """Returns shape and word of a severity, in its colour."""
    shape, _ = colours.SEVERITIES[severity]
    return f":{MARKDOWN_COLOURS[severity]}[**{shape} {SEVERITY_WORDS[severity]}**]"


@contextmanager
def card(key: str, title: str) -> Iterator[None]:
    """Draws what follows into a card of this title."""
    with st.container(border=True, key=f"card-{key}"):
        st.markdown(f"**{title}**")
        yield


def lives_of(page: Page) -> Lives:
    """Returns what the log stores of the life of its findings, as of now."""
    return read_lives(page.log, time.time_ns(), is_closed=is_closed(page.log))


def stored_states(page: Page, lives: Lives) -> list[FindingState]:
    """Returns the states of this engine's findings, in any window."""
    return [state for state in lives.states if state.engine == page.scope.engine]
