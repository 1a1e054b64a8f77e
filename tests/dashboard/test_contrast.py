"""What is written can be read: each colour of text on each ground it may stand on, by WCAG 2.2.

The palette and the style sheet are computed here; what the browser makes of them, Streamlit's own
texts too, is measured in every page.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard import colours, style
from dashboard.colours import Colour, Theme
from dashboard.theme import options
from tests.dashboard.browsing import needs_chromium
from tests.dashboard.serving import Served, dashboard

THEMES: tuple[Theme, ...] = ("dark", "light")
AA = 4.5
"""The least contrast of text. Source: WCAG 2.2, 1.4.3."""
AA_GRAPHICS = 3.0
"""The least contrast of what is no text. Source: WCAG 2.2, 1.4.11."""
GROUNDS = (colours.BACKGROUND, colours.PANEL)
TEXTS: dict[str, Colour] = {
    "text": colours.TEXT,
    "muted": colours.MUTED,
    "link": colours.LINK,
    "healthy": colours.HEALTHY[1],
    "cost": colours.LOST,
    **{severity.name: colour for severity, (_, colour) in colours.SEVERITIES.items()},
    **{f"code: {kind}": colour for kind, colour in style.CODE.items()},
}
_COLOUR = re.compile(r"(?<![-\w])color:(#[0-9A-Fa-f]{6})")
SCRIPT = Path(__file__).with_name("contrast.js").read_text()
BODY = SCRIPT[SCRIPT.index("() =>") :]
ADDRESSES = (
    *("overview", "preemptions", "requests", "requests?request=1", "steps", "steps?step=1"),
    *("whatif", "findings", "findings?rule=kv-preemption-thrash", "recorder"),
    *("sql?q=preemptions-by-minute", "sql?sql=FROM+nothing"),
)


# ------------------------------------------------------------------------ palette and style sheet


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", TEXTS)
def test_text_can_be_read_on_every_ground(name: str, theme: Theme) -> None:
    for ground in GROUNDS:
        assert colours.contrast(TEXTS[name].of(theme), ground.of(theme)) >= AA


@pytest.mark.parametrize("theme", THEMES)
def test_the_style_sheet_sets_no_text_that_cannot_be_read(theme: Theme) -> None:
    """But for the primary button, whose words are set on the colour of links."""
    rules = style.sheet(theme).split("}")
    found = [(rule, _COLOUR.search(rule)) for rule in rules]
    told = [(rule.split("{")[0], match[1]) for rule, match in found if match]
    assert len(told) > 10
    for selector, colour in told:
        grounds = [colours.LINK] if "primary" in selector else GROUNDS
        assert all(colours.contrast(colour, ground.of(theme)) >= AA for ground in grounds), selector


@pytest.mark.parametrize("theme", THEMES)
def test_streamlit_s_names_of_colours_can_be_read(theme: Theme) -> None:
    named = {
        name: str(value)
        for name, value in options("127.0.0.1", 8501).items()
        if name.startswith(f"theme.{theme}.") and name.endswith("TextColor")
    }
    assert len(named) == 7
    for colour in named.values():
        assert all(colours.contrast(colour, ground.of(theme)) >= AA for ground in GROUNDS)


@pytest.mark.parametrize("theme", THEMES)
def test_blocks_and_phases_stand_out_from_the_ground(theme: Theme) -> None:
    drawn = (colours.USEFUL, colours.PREFILL, colours.EVICTED, colours.LOST, colours.HELD)
    for colour in drawn:
        assert colours.contrast(colour.of(theme), colours.BACKGROUND.of(theme)) >= AA_GRAPHICS


# ------------------------------------------------------------------------------------ the browser


@pytest.fixture(scope="module")
def served(dense_log: Path) -> Iterator[Served]:
    with dashboard(dense_log) as running:
        yield running


def opened(browser: Any, served: Served, path: str, **options: Any) -> Any:
    """A page that has been drawn to its end."""
    page = browser.new_page(**options)
    page.set_default_timeout(60_000)
    page.goto(f"{served.url}/{path}")
    page.locator("h3, h4").first.wait_for()
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.wait_for_load_state("networkidle")
    return page


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", ADDRESSES)
def test_all_that_a_browser_shows_can_be_read(
    browser: Any, served: Served, path: str, theme: Theme
) -> None:
    size = {"width": 1440, "height": 1600}
    page = opened(browser, served, path, viewport=size, color_scheme=theme)
    from playwright.sync_api import TimeoutError as TookTooLong

    with contextlib.suppress(TookTooLong):  # what comes last may take a moment
        page.wait_for_function(f"() => !Object.keys(({BODY})()).length", timeout=15_000)
    too_pale = page.evaluate(BODY)
    page.close()
    assert too_pale == {}


@pytest.mark.browser
@needs_chromium
def test_the_tool_finds_a_text_that_is_too_pale(browser: Any) -> None:
    page = browser.new_page()
    page.set_content(
        '<body style="background:#fff"><p style="color:#999">pale</p><p>fine</p>'
        '<p style="color:#000;opacity:.4">faded</p></body>'
    )
    found = page.evaluate(BODY)
    page.close()
    assert set(found) == {"pale", "faded"}
    assert found["pale"] == 2.85


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("path", ADDRESSES)
def test_a_phone_scrolls_in_one_direction(browser: Any, served: Served, path: str) -> None:
    page = opened(browser, served, path, viewport={"width": 390, "height": 844})
    page.wait_for_function(
        """() => {
          const main = document.querySelector('[data-testid=stMain]');
          return main.scrollWidth <= main.clientWidth;
        }""",
        timeout=20_000,
    )
    page.close()
