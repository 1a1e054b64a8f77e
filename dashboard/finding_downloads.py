"""One finding to hand on: as a report, and as JSON."""

from __future__ import annotations

import json
import time

import streamlit as st

from dashboard import added
from dashboard.dialogs import dialog
from dashboard.report.writing import html_report, markdown_report
from dashboard.session import Page
from diagnose.finding import Finding
from diagnose.json_output import to_document
from diagnose.life import is_closed
from diagnose.life.said import with_life
from diagnose.words import plural


def draw(page: Page, finding: Finding) -> None:
    """Draws the buttons; a report is written when it is asked for."""
    found = page.whole_diagnosis()
    whatifs = added.whatifs_of(page)
    st.download_button(
        "Report (HTML)",
        lambda: html_report(page.log, found, finding.id, whatifs),
        file_name=f"{finding.id}.html",
        mime="text/html",
        on_click="ignore",
        type="primary",
        width="stretch",
        key="report-html",
    )
    st.download_button(
        "Report (Markdown)",
        lambda: markdown_report(page.log, found, finding.id, whatifs),
        file_name=f"{finding.id}.md",
        mime="text/markdown",
        on_click="ignore",
        width="stretch",
        key="report-markdown",
    )
    if whatifs:
        st.caption(f"with {plural(len(whatifs), 'what-if')}")
    if st.button("Copy as JSON", width="stretch", key="report-json"):
        _show_json(page, finding)


@dialog("The finding as JSON")
def _show_json(page: Page, finding: Finding) -> None:
    found = page.whole_diagnosis()
    whole, said = with_life(page.log, found, time.time_ns(), is_closed=is_closed(page.log))
    documents = to_document(whole, {name: each.document for name, each in said.items()})
    own = next(each for each in documents["findings"] if each["id"] == finding.id)
    st.code(json.dumps(own, indent=2), language="json", height=520)
