"""The real dashboard on a real closed log, in a headless browser.

A chart that Vega cannot draw reports nothing to Python, so only a browser can tell.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard import colours
from tests.dashboard.serving import Served, dashboard

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
MILLISECONDS = 60_000
CANVAS = "[data-testid=stVegaLiteChart] canvas"
CHART = "[data-testid=stVegaLiteChart] :is(canvas, svg.marks)"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs {CHROMIUM}: apt install chromium"),
]
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")


@pytest.fixture(scope="module")
def served(storm_log: Path) -> Iterator[Served]:
    with dashboard(storm_log) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        chromium.close()


class Visit:
    """A page in the browser, and what it complained of and asked for."""

    def __init__(self, browser, served: Served, theme: str) -> None:
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self.page = browser.new_page(viewport={"width": 1440, "height": 1200}, color_scheme=theme)
        self.page.set_default_timeout(MILLISECONDS)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", lambda request: self._asked(request.url, served.url))
        self.page.goto(served.url)

    def _said(self, message) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _asked(self, url: str, own: str) -> None:
        local = (own, own.replace("http", "ws"), "data:", "blob:")
        if not url.startswith(local):
            self.strangers.append(url)

    def wait_for_charts(self) -> None:
        self.page.wait_for_selector(CHART)

    def picture(self) -> str:
        """What is drawn on the chart."""
        return str(self.page.evaluate(f"document.querySelector({CANVAS!r}).toDataURL()"))

    def wait_for_colour(self, colour: str) -> None:
        """Waits until the chart has a pixel of a colour, given as `#RRGGBB`."""
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        self.page.wait_for_function(
            """([selector, wanted]) => {
              const canvas = document.querySelector(selector);
              const drawn = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              for (let i = 0; i < drawn.data.length; i += 4) {
                if (wanted.every((part, k) => drawn.data[i + k] === part)) { return true; }
              }
              return false;
            }""",
            arg=[CANVAS, wanted],
        )


@pytest.fixture
def visit(browser, served: Served) -> Iterator[Visit]:
    opened = Visit(browser, served, "dark")
    yield opened
    opened.page.close()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_overview_is_drawn_and_says_the_verdict(
    browser, served: Served, theme: colours.Theme
) -> None:
    visit = Visit(browser, served, theme)
    visit.page.get_by_text("The KV pool holds 9 of these requests to their end").wait_for()
    visit.page.wait_for_url("**/overview")
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
    visit.page.get_by_role("link", name="Requests").click()
    visit.page.get_by_text("Showing 84 of 84 requests, worst first.").wait_for()
    visit.page.wait_for_selector("[data-testid=stDataFrame] canvas")
    assert visit.complaints == []
    assert visit.strangers == []
