"""What one takes along from the What-if page: flags to copy, a prediction for the report."""

from __future__ import annotations

import streamlit as st

from dashboard import added
from dashboard.dialogs import dialog
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from diagnose.incident.predictions import WhatIf, undo_of
from diagnose.replay.whatif_words import changes_of, flags_of
from diagnose.words import plural


def draw(page: Page, whatif: WhatIf) -> None:
    """Draws *Copy as flags* and *Add to report* of a change that was chosen."""
    with st.container(horizontal=True, width="content", key="whatif-hand-on"):
        if st.button("Copy as flags", key="whatif-flags", type="tertiary"):
            _show_flags(whatif)
        is_in = whatif in added.whatifs_of(page)
        st.button(
            "Take out of report" if is_in else "Add to report",
            key="whatif-report",
            type="tertiary",
            on_click=added.take_out if is_in else added.add,
            args=(page, whatif),
        )


def say_what_is_in(page: Page) -> None:
    """Draws how many go into the report, and the way there; nothing where there is none."""
    whatifs = added.whatifs_of(page)
    if not whatifs:
        return
    told, way = st.columns([4, 1], vertical_alignment="center")
    names = in_markdown("; ".join(changes_of(each.prediction) for each in whatifs), 300)
    told.caption(
        f"{plural(len(whatifs), 'what-if')} in the report that Findings offers for download: "
        f"{names}. Kept for this visit."
    )
    if way.button("To the report", key="whatif-to-report", type="tertiary"):
        st.switch_page(st.session_state["pages"]["findings"])


@dialog("The change as flags")
def _show_flags(whatif: WhatIf) -> None:
    prediction = whatif.prediction
    st.markdown(f"**{in_markdown(changes_of(prediction), 200)}**")
    flags = flags_of(prediction)
    if not flags:
        st.caption("No flag of the engine makes this change: it is the load that would differ.")
        return
    st.caption("To do it, at the next start of the engine:")
    st.code(flags, language=None)
    st.caption("To undo it:")
    st.code(undo_of(prediction), language=None)
