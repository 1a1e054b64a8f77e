"""The way to a step and from step to step, in a headless browser: by a click, a link, and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard import colours
from tests.dashboard.browsing import CANVAS, Visit, needs_chromium
from tests.dashboard.serving import Served, dashboard

pytestmark = [pytest.mark.browser, needs_chromium]
MAX_TABS = 60


@pytest.fixture(scope="module")
def served(dense_log: Path) -> Iterator[Served]:
    with dashboard(dense_log) as running:
        yield running


def open_step(visit: Visit, served: Served, number: int) -> None:
    visit.page.goto(f"{served.url}/steps?step={number}")
    visit.page.get_by_role("heading", name=f"Step {number}:").wait_for()


def test_a_click_into_the_overview_opens_the_step_there(visit: Visit) -> None:
    visit.wait_for_charts()
    visit.wait_for_colour(colours.EVICTED.dark)
    box = visit.page.locator(CANVAS).first.bounding_box()
    assert box is not None
    visit.page.mouse.click(box["x"] + 400, box["y"] + 260)
    visit.page.wait_for_url("**/steps?**step=*")
    visit.page.get_by_role("heading", name="Step ").wait_for()
    assert visit.complaints == []


def test_the_story_of_a_request_leads_to_its_steps(visit: Visit, served: Served) -> None:
    visit.page.goto(f"{served.url}/requests?request=27")
    link = visit.page.get_by_role("link", name="step 1", exact=True)
    link.wait_for()
    visit.page.goto(f"{served.url}/{link.get_attribute('href')}")
    visit.page.get_by_role("heading", name="Step 1: 28 requests needed one more block").wait_for()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_story_of_a_request_is_drawn_and_a_click_opens_the_step_there(
    browser: Any, served: Served, theme: colours.Theme
) -> None:
    visit = Visit(browser, served, theme)
    visit.page.goto(f"{served.url}/requests?request=27")
    for colour in (colours.PREFILL, colours.USEFUL, colours.LOST, colours.EVICTED):
        visit.page.wait_for_selector(f'svg.marks [fill="{colour.of(theme)}"]')
    visit.page.wait_for_selector(f'svg.marks [stroke="{colours.EVICTED.of(theme)}"]')
    box = visit.page.locator("svg.marks").first.bounding_box()
    assert box is not None
    visit.page.mouse.click(box["x"] + 400, box["y"] + 200)
    visit.page.wait_for_url("**/steps?**step=*")
    visit.page.get_by_role("heading", name="Step ").wait_for()
    assert visit.strangers == []
    visit.page.close()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_block_map_is_drawn(browser: Any, served: Served, theme: colours.Theme) -> None:
    visit = Visit(browser, served, theme)
    open_step(visit, served, 1)
    for colour in (colours.PREFILL, colours.USEFUL, colours.CACHED):
        visit.page.wait_for_selector(f'svg.marks [fill="{colour.of(theme)}"]')
    visit.page.wait_for_selector(f'svg.marks [stroke="{colours.EVICTED.of(theme)}"]')
    assert visit.strangers == []
    visit.page.close()


def test_the_keyboard_alone_goes_from_preemption_to_preemption(
    visit: Visit, served: Served
) -> None:
    open_step(visit, served, 0)
    wanted = visit.page.get_by_role("button", name="next preemption: 1 ››")
    wanted.wait_for()
    for _ in range(MAX_TABS):
        visit.page.keyboard.press("Tab")
        if wanted.evaluate("button => button === document.activeElement"):
            break
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("heading", name="Step 1: 28 requests needed one more block").wait_for()
    visit.page.wait_for_url("**step=1*")
