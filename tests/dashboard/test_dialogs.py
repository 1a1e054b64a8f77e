"""A dialog stays open while the page behind it has more to work out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

TIMEOUT = 120


def _page() -> None:
    import streamlit as st

    from dashboard import dialogs, session

    @dialogs.dialog("A dialog")
    def shown() -> None:
        st.write("in it")

    dialogs.begin()
    if st.session_state["opens"]:
        shown()
    page = session.open_page()
    assert page is not None
    page.work_out()
    st.session_state["effort"] = page.effort


def test_nothing_is_drawn_anew_until_it_is_closed(
    storm_log: Path, tmp_path: Path, show: Callable[[Path], None]
) -> None:
    show(shutil.copytree(storm_log, tmp_path / "unseen"))
    at = AppTest.from_function(_page, default_timeout=TIMEOUT)
    at.session_state["opens"] = True
    at.run()
    assert not at.exception
    assert [said.value for said in at.markdown] == ["in it"]
    assert at.session_state["effort"] == "none"
    at.session_state["opens"] = False
    at.run()
    assert at.session_state["effort"] == "usual"
