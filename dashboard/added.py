"""What-ifs that a visitor added to the report. They are kept for the visit, not in the log."""

from __future__ import annotations

import streamlit as st

from dashboard.session import Page
from diagnose.incident.predictions import WhatIf

KEPT = "whatifs_for_the_report"


def whatifs_of(page: Page) -> tuple[WhatIf, ...]:
    """Returns what was added of the page's log and engine, in the order in which it was."""
    kept = st.session_state.get(KEPT, ())
    return tuple(
        whatif
        for path, whatif in kept
        if path == str(page.path) and whatif.scope.engine == page.scope.engine
    )


def add(page: Page, whatif: WhatIf) -> None:
    """Adds one; a second time it is no more than once there."""
    take_out(page, whatif)
    st.session_state[KEPT] = (*st.session_state[KEPT], (str(page.path), whatif))


def take_out(page: Page, whatif: WhatIf) -> None:
    """Takes one out, where it is in."""
    kept = st.session_state.get(KEPT, ())
    own = (str(page.path), whatif)
    st.session_state[KEPT] = tuple(each for each in kept if each != own)
