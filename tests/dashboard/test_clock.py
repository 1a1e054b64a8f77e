"""The clock in the browser that draws parts of a page anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from dashboard import clock
from tests.dashboard.browsing import needs_chromium

PAGE = """
<div data-testid="stApp" data-test-script-state="notRunning"
     data-test-connection-state="CONNECTED"><button>Report</button></div>
"""
MOUNT = """
async (script) => {
  const url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
  const { default: set } = await import(url);
  const parentElement = document.querySelector('[data-testid="stApp"]');
  window.ticks = 0;
  const setTriggerValue = () => { window.ticks += 1; };
  const data = { name: 'verdict', seconds: 0 };
  window.answer = () => set({ data, parentElement, setTriggerValue });
  window.answer();
}
"""
DRAWS = "(state) => { document.querySelector('[data-testid]').dataset.testScriptState = state; }"
BUSY = "window[Symbol.for('stepscope.clock')].longest = 60_000"
A_WHILE_MS = 1_500
"""Of a hold of 20 s; a clock that did not hold would have asked three times."""


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


@pytest.fixture
def busy(browser: Any) -> Iterator[Any]:
    """A page without Streamlit, whose clock has asked and knows that its server is slow."""
    page = browser.new_page()
    page.set_content(PAGE)
    page.evaluate(MOUNT, clock.script())
    page.wait_for_function("window.ticks === 1")
    page.evaluate(BUSY)
    yield page
    page.close()


def draw_once(page: Any) -> None:
    page.evaluate(DRAWS, "running")
    page.wait_for_timeout(3 * clock.LOOK_MS)
    page.evaluate(DRAWS, "notRunning")


@pytest.mark.browser
@needs_chromium
def test_nothing_is_asked_for_while_something_is_drawn(busy: Any) -> None:
    busy.evaluate(DRAWS, "running")
    busy.evaluate("window.answer()")
    busy.wait_for_timeout(A_WHILE_MS)
    assert busy.evaluate("window.ticks") == 1
    busy.evaluate(DRAWS, "notRunning")
    busy.wait_for_function("window.ticks === 2")


@pytest.mark.browser
@needs_chromium
def test_after_a_click_it_waits_until_what_was_clicked_is_drawn(busy: Any) -> None:
    busy.evaluate("window.answer()")
    busy.get_by_role("button").click()
    busy.wait_for_timeout(A_WHILE_MS)
    assert busy.evaluate("window.ticks") == 1
    draw_once(busy)
    busy.wait_for_function("window.ticks === 2")


@pytest.mark.browser
@needs_chromium
def test_what_is_drawn_first_after_a_click_may_be_what_the_clock_asked_for(busy: Any) -> None:
    busy.get_by_role("button").click()  # the clock has asked, and is not answered
    draw_once(busy)
    busy.evaluate("window.answer()")
    busy.wait_for_timeout(A_WHILE_MS)
    assert busy.evaluate("window.ticks") == 1
