"""The way of an incident in a headless browser: from an alert's link to one request's story.

Also what holds on that way: a copied link shows the same again, two visitors do not disturb each
other, a phone shows the answer, and the keyboard alone leads on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard import address
from diagnose.diagnosis import diagnose
from diagnose.finding import Finding
from diagnose.watch.payloads import generic
from diagnose.words import engine_hex
from telemetry.store import open_log
from tests.dashboard import logs
from tests.dashboard.browsing import CANVAS, MILLISECONDS, Visit, needs_chromium, turn_to
from tests.dashboard.serving import Served, dashboard
from tests.diagnose.watch.stored import notice_of

pytestmark = [pytest.mark.browser, needs_chromium]
OTHER_ENGINE = 0x7000000000000002
MAX_TABS = 60
PHONE = {"width": 390, "height": 844}
OVERHANG = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  return Math.max(document.documentElement.scrollWidth, main.scrollWidth) - window.innerWidth;
}"""


@pytest.fixture(scope="module")
def two_engines_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two engine starts: an address that names one of them has something to keep."""
    runs = logs.storm(), logs.storm(num_requests=40, engine=OTHER_ENGINE)
    return logs.write_log(tmp_path_factory.mktemp("two"), *(run.builder() for run in runs))


@pytest.fixture(scope="module")
def finding(two_engines_log: Path) -> Finding:
    """The storm of the first engine."""
    with open_log(two_engines_log) as log:
        return diagnose(log, engines=[logs.ENGINE], effort="none").findings[0]


@pytest.fixture(scope="module")
def served(two_engines_log: Path) -> Iterator[Served]:
    with dashboard(two_engines_log) as running:
        yield running


def expect(locator: Any) -> Any:
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=MILLISECONDS)
    return sync_api.expect(locator)


def window_chip(page: Any) -> Any:
    return page.locator(".st-key-chip-window p").first


def half_of(finding: Finding) -> dict[str, str]:
    """The parts of an address that show the first half of a finding."""
    opened, cleared = finding.span.opened_ts, finding.span.cleared_ts
    assert cleared is not None
    times = opened, (opened + cleared) // 2
    return {
        "engine": engine_hex(finding.engine),
        "from": address.format_time(times[0]),
        "to": address.format_time(times[1]),
    }


def asked(parts: dict[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in parts.items())


def test_a_button_that_is_pressed_while_the_load_is_replayed_leads_on(
    visit: Visit, served: Served, finding: Finding
) -> None:
    window = asked(half_of(finding))
    visit.page.goto(f"{served.url}/findings?{window}")
    visit.page.get_by_text("Replaying the load").wait_for()
    visit.page.get_by_role("button", name="Open").first.click()
    visit.page.wait_for_url(lambda url: "finding=" in url)
    visit.page.locator(".st-key-card-short").wait_for()


def test_an_alert_leads_by_clicks_to_the_story_of_a_victim(
    visit: Visit, served: Served, finding: Finding
) -> None:
    notice = notice_of(finding=finding.id, engine=finding.engine)
    visit.page.goto(generic(notice, served.url)["url"])
    visit.page.get_by_role("heading", name=re.compile("The KV pool holds 9")).wait_for()
    paid = visit.page.locator(".st-key-card-paid").get_by_role("link").first
    number = paid.inner_text()
    with visit.page.expect_popup() as opened:
        paid.click()
    story = opened.value
    story.get_by_role("heading", name=f"Request {number} was evicted").wait_for()
    assert parse_qs(urlsplit(story.url).query)["engine"] == [engine_hex(finding.engine)]
    step = story.locator(".st-key-card-story").get_by_role("link").first
    with story.expect_popup() as opened:
        step.click()
    opened.value.get_by_role("heading", name=step.inner_text().capitalize()).wait_for()
    assert visit.strangers == []


def test_a_brushed_window_is_in_the_chip_and_in_the_address(visit: Visit) -> None:
    visit.wait_for_charts()
    before = window_chip(visit.page).inner_text()
    box = visit.page.locator(CANVAS).first.bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + 400, box["y"] + 36)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 700, box["y"] + 36, steps=8)
    visit.page.mouse.up()
    visit.page.wait_for_url(lambda url: "from=" in url and "to=" in url)
    expect(window_chip(visit.page)).not_to_have_text(before)
    window = address.parse_window(
        {name: values[0] for name, values in parse_qs(urlsplit(visit.page.url).query).items()}
    )
    assert window is not None
    assert 0 < window[1] - window[0] < 5e9
    assert visit.complaints == []


def test_a_copied_link_shows_the_same_window_engine_and_request(
    visit: Visit, browser: Any, served: Served, finding: Finding
) -> None:
    parts = half_of(finding) | {"request": "60"}
    visit.page.goto(f"{served.url}/requests?{asked(parts)}")
    said = visit.page.get_by_role("heading", name=re.compile("Request 60 was evicted"))
    said.wait_for()
    window_chip(visit.page).click()
    copied = visit.page.get_by_text(f"{served.url}/requests?").inner_text()
    assert {name: values[0] for name, values in parse_qs(urlsplit(copied).query).items()} == parts
    again = browser.new_context().new_page()
    again.goto(copied)
    expect(again.get_by_role("heading", name="Request 60 was evicted")).to_have_text(
        said.inner_text()
    )
    expect(window_chip(again)).to_have_text(window_chip(visit.page).inner_text())
    again.context.close()
    assert visit.strangers == []


def test_two_visitors_with_other_windows_do_not_disturb_each_other(
    browser: Any, served: Served, finding: Finding
) -> None:
    mine, yours = (browser.new_context().new_page() for _ in range(2))
    part = half_of(finding)
    mine.goto(f"{served.url}/preemptions?{asked(part)}")
    yours.goto(f"{served.url}/preemptions?engine={engine_hex(OTHER_ENGINE)}")
    told = [page.get_by_role("heading", name=re.compile(r"^\d+ preemptions")) for page in
            (mine, yours)]  # fmt: skip
    said = [heading.inner_text() for heading in told]
    chips = [window_chip(page).inner_text() for page in (mine, yours)]
    assert said[0] != said[1]
    assert chips[0] != chips[1]
    turn_to(mine, "Requests")
    mine.get_by_text("requests, worst first.").wait_for()
    turn_to(yours, "Recorder")
    yours.get_by_role("heading", name="The record is whole").wait_for()
    for page, before in ((mine, chips[0]), (yours, chips[1])):
        expect(window_chip(page)).to_have_text(before)
    assert parse_qs(urlsplit(mine.url).query)["from"] == [part["from"]]
    assert "from=" not in yours.url
    for page in (mine, yours):
        page.context.close()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("overview", "The KV pool holds 9 of these requests"),
        ("preemptions", "preemptions, all because the KV pool was full"),
        ("requests?request=60", "Request 60 was evicted"),
        ("steps?step=3", "Step 3:"),
    ],
)
def test_a_phone_shows_the_answer_first_and_does_not_scroll_sideways(
    browser: Any, served: Served, path: str, answer: str
) -> None:
    page = browser.new_page(viewport=PHONE)
    page.goto(f"{served.url}/{path}{'&' if '?' in path else '?'}engine={engine_hex(logs.ENGINE)}")
    told = page.get_by_role("heading", name=answer)
    told.wait_for()
    expect(told).to_be_in_viewport(ratio=1)
    page.wait_for_function(f"({OVERHANG})() <= 0")
    page.close()


def test_the_keyboard_alone_leads_from_the_verdict_to_the_report(visit: Visit) -> None:
    page = visit.page
    visit.wait_for_charts()
    wanted = page.get_by_role("button", name="Report", exact=True)
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        if wanted.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/findings?**finding=kvp-*")
    page.get_by_text("Why we believe it").wait_for()
    assert visit.complaints == []
