"""The clock in the browser that draws parts of a page anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import streamlit
from streamlit.testing.v1 import AppTest


def _parts() -> None:
    import streamlit as st

    from dashboard import clock

    clock.repeated(lambda text: st.write(text), "moving", 2)("drawn again")
    clock.repeated(lambda text: st.write(text), "still", None)("drawn once")


def test_the_installed_page_says_what_the_clock_reads() -> None:
    scripts = (Path(streamlit.__file__).parent / "static").rglob("*.js")
    text = "".join(script.read_text() for script in scripts)
    for name in ("data-test-script-state", "data-test-connection-state", "notRunning", "CONNECTED"):
        assert name in text


def clocks(test: AppTest) -> list[dict[str, Any]]:
    return [json.loads(each.proto.json) for each in test.get("bidi_component")]


def test_only_what_moves_has_a_clock() -> None:
    test = AppTest.from_function(_parts).run()
    assert not test.exception
    assert [said.value for said in test.markdown] == ["drawn again", "drawn once"]
    assert [(clock["name"], clock["seconds"]) for clock in clocks(test)] == [("moving", 2)]


def test_each_drawing_sets_the_clock_anew() -> None:
    test = AppTest.from_function(_parts).run()
    before = clocks(test)
    assert clocks(test.run()) != before
