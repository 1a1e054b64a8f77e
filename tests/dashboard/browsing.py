"""A headless browser for tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dashboard import colours
from tests.dashboard.serving import Served

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
MILLISECONDS = 120_000
CANVAS = "[data-testid=stVegaLiteChart] canvas"
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
CHART = "[data-testid=stVegaLiteChart] :is(canvas, svg.marks)"

needs_chromium = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"needs {CHROMIUM}: apt install chromium"
)


@contextmanager
def chromium(*flags: str) -> Iterator[Any]:
    """Starts a browser, and ends it."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page in the browser, and what it complained of and asked for."""

    def __init__(
        self, browser: Any, served: Served, theme: colours.Theme, *, is_live: bool = False
    ) -> None:
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self.page = browser.new_page(viewport={"width": 1440, "height": 1200}, color_scheme=theme)
        self.page.set_default_timeout(MILLISECONDS)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", lambda request: self._asked(request.url, served.url))
        self.page.goto(served.url)
        if not is_live:  # a button that is pressed before the first drawing has ended can be lost
            self.page.wait_for_selector(SETTLED)

    def _said(self, message: Any) -> None:
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
              if (!canvas) { return false; }
              const drawn = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              for (let i = 0; i < drawn.data.length; i += 4) {
                if (wanted.every((part, k) => drawn.data[i + k] === part)) { return true; }
              }
              return false;
            }""",
            arg=[CANVAS, wanted],
        )


def turn_to(page: Any, title: str) -> None:
    """Clicks a page's link at the top."""
    page.get_by_test_id("stTopNav").get_by_role("link", name=title, exact=True).click()
