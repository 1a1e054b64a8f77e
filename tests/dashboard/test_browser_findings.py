"""From the verdict to the finding and on to a file, in a headless browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard import colours
from tests.dashboard.browsing import Visit, needs_chromium, turn_to
from tests.dashboard.serving import Served, dashboard

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def served(storm_log: Path) -> Iterator[Served]:
    with dashboard(storm_log) as running:
        yield running


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_verdict_leads_to_the_finding_with_its_charts(
    browser: Any, served: Served, theme: colours.Theme
) -> None:
    visit = Visit(browser, served, theme)
    visit.page.get_by_role("button", name="Report").click()
    visit.page.wait_for_url("**/findings?**finding=kvp-*")
    visit.page.get_by_text("Why we believe it").wait_for()
    visit.wait_for_charts()
    visit.wait_for_colour(colours.EVICTED.of(theme))
    assert visit.complaints == []
    assert visit.strangers == []
    visit.page.close()


def test_a_report_can_be_taken_along_in_both_forms(browser: Any, served: Served) -> None:
    visit = Visit(browser, served, "dark")
    visit.page.get_by_role("button", name="Report").click()
    for name, beginning in (("HTML", "<!doctype html>"), ("Markdown", "# KV preemption")):
        with visit.page.expect_download() as waiting:
            visit.page.get_by_role("button", name=f"Report ({name})").click()
        assert Path(waiting.value.path()).read_text().startswith(beginning)
    visit.page.close()


def test_the_list_opens_a_finding_and_takes_it_back(browser: Any, served: Served) -> None:
    visit = Visit(browser, served, "dark")
    turn_to(visit.page, "Findings")
    visit.page.get_by_text("1 finding, cleared;").wait_for()
    visit.page.get_by_role("button", name="Open", exact=True).click()
    visit.page.wait_for_url("**finding=kvp-*")
    visit.page.get_by_role("button", name="All findings").click()
    visit.page.get_by_text("1 finding, cleared;").wait_for()
    assert "finding=" not in visit.page.url
    assert visit.complaints == []
    visit.page.close()
