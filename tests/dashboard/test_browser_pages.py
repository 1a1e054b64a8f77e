"""Recorder and SQL in a headless browser: drawn, usable by keys alone, and reopened from a link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard import colours
from tests.dashboard.browsing import Visit, needs_chromium, turn_to
from tests.dashboard.serving import Served, dashboard

pytestmark = [pytest.mark.browser, needs_chromium]
MAX_TABS = 40


@pytest.fixture(scope="module")
def served(interrupted_log: Path) -> Iterator[Served]:
    with dashboard(interrupted_log) as running:
        yield running


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_gap_is_hatched(browser: Any, served: Served, theme: colours.Theme) -> None:
    visit = Visit(browser, served, theme)
    turn_to(visit.page, "Recorder")
    visit.page.get_by_text("10.3 % of steps are missing in 1 gap").wait_for()
    visit.page.wait_for_selector(f'svg.marks [fill="{colours.USEFUL.of(theme)}"]')
    visit.page.wait_for_selector(f'svg.marks [stroke="{colours.MUTED.of(theme)}"]')
    visit.page.get_by_text("not recorded", exact=True).first.wait_for()
    assert visit.complaints == []
    assert visit.strangers == []
    visit.page.close()


def tab_to(visit: Visit, element: Any) -> None:
    for _ in range(MAX_TABS):
        if element.evaluate("one => one === document.activeElement"):
            return
        visit.page.keyboard.press("Tab")
    raise AssertionError("Tab does not lead there")


def test_the_keyboard_alone_asks_and_the_link_asks_again(
    visit: Visit, served: Served, browser: Any
) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    page = visit.page
    turn_to(page, "SQL")
    editor = page.get_by_label("Statement")
    editor.wait_for()
    tab_to(visit, editor)
    page.keyboard.press("Control+A")
    page.keyboard.type("SELECT count(*) AS n FROM steps")
    tab_to(visit, page.get_by_role("button", name="Run"))
    page.keyboard.press("Enter")
    page.wait_for_url("**sql=SELECT*")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert Path(download.value.path()).read_text() == "n\n525\n"
    again = browser.new_page()
    again.goto(page.url)
    again.get_by_text("1 row.").wait_for()
    expect(again.get_by_label("Statement")).to_have_value("SELECT count(*) AS n FROM steps")
    again.close()
    assert visit.complaints == []
    assert visit.strangers == []


def test_show_sql_opens_in_sql(visit: Visit, served: Served) -> None:
    page = visit.page
    turn_to(page, "Steps")
    page.get_by_role("button", name="Show SQL").click()
    page.get_by_role("button", name="Open in SQL").click()
    page.wait_for_url("**/sql?**")
    page.get_by_text("rows.").first.wait_for()
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.get_by_label("Statement")).to_have_value(re.compile("num_preempted > 0"))
