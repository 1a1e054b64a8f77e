"""The real dashboard on a real closed log, in a headless browser.

A chart that Vega cannot draw reports nothing to Python, so only a browser can tell.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard import colours
from tests.dashboard.browsing import CANVAS, MILLISECONDS, Visit, needs_chromium, turn_to
from tests.dashboard.serving import Served, dashboard

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def served(storm_log: Path) -> Iterator[Served]:
    with dashboard(storm_log) as running:
        yield running


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_overview_is_drawn_and_says_the_verdict(
    browser: Any, served: Served, theme: colours.Theme
) -> None:
    visit = Visit(browser, served, theme)
    visit.page.get_by_text("The KV pool holds 9 of these requests to their end").wait_for()
    visit.wait_for_charts()
    for colour in (colours.EVICTED, colours.USEFUL, colours.LOST):
        visit.wait_for_colour(colour.of(theme))
    assert visit.complaints == []
    assert visit.strangers == []
    visit.page.close()


def test_pointing_at_a_moment_moves_the_cursor(visit: Visit) -> None:
    visit.wait_for_charts()
    visit.wait_for_colour(colours.EVICTED.dark)
    box = visit.page.locator(CANVAS).first.bounding_box()
    assert box is not None
    before = visit.picture()
    deadline = time.monotonic() + MILLISECONDS / 1000
    moves = itertools.cycle((300, 400, 500))
    while visit.picture() == before:
        assert time.monotonic() < deadline, "the cursor drew nothing"
        visit.page.mouse.move(box["x"] + next(moves), box["y"] + 250, steps=4)
    assert visit.complaints == []


def test_dragging_over_the_arrivals_chooses_a_window(visit: Visit) -> None:
    visit.wait_for_charts()
    visit.wait_for_colour(colours.EVICTED.dark)
    box = visit.page.locator(CANVAS).first.bounding_box()
    assert box is not None
    y = box["y"] + 36
    visit.page.mouse.move(box["x"] + 400, y)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 700, y, steps=8)
    visit.page.mouse.up()
    visit.page.wait_for_url(lambda url: "from=" in url and "to=" in url)
    visit.wait_for_charts()
    assert visit.complaints == []


def test_the_path_leads_from_the_verdict_to_the_requests(visit: Visit) -> None:
    visit.page.get_by_role("button", name="preemptions explained").click()
    visit.page.get_by_text("Newer requests paid for older ones.").wait_for()
    visit.wait_for_charts()
    turn_to(visit.page, "Requests")
    visit.page.get_by_text("Showing 84 of 84 requests, worst first.").wait_for()
    visit.page.wait_for_selector("[data-testid=stDataFrame] canvas")
    assert visit.complaints == []
    assert visit.strangers == []


def test_charts_are_as_wide_as_the_page_and_the_next_visit_knows_it(
    browser: Any, served: Served
) -> None:
    fits = f"""() => {{
      const page = document.querySelector('[data-testid=stMainBlockContainer]');
      const chart = document.querySelector('{CANVAS}');
      return page && chart && chart.clientWidth > 480 && chart.clientWidth <= page.clientWidth;
    }}"""
    context = browser.new_context(viewport={"width": 1100, "height": 1200})
    for _ in range(2):
        page = context.new_page()
        page.set_default_timeout(MILLISECONDS)
        page.goto(f"{served.url}/overview")
        page.wait_for_function(fits)
        page.close()
        told = {cookie["name"]: cookie["value"] for cookie in context.cookies()}
        assert 800 < int(told["stepscope_page_width"]) < 1100
    context.close()
