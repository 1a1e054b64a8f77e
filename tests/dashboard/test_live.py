"""The dashboard on a log that is being written: it follows, and says when the engine goes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.source import ROOT_VARIABLE
from telemetry.collector import start_collector, stop_collector
from tests.dashboard import browsing
from tests.dashboard.serving import dashboard
from tests.dashboard.test_views import charts, overview, recorder, requests, said, sql, steps

SECONDS = 120


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A recorded engine in an endless storm, with its collector; the log is `tmp_path / "log"`."""
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / "rings"))
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "log"))
    start_collector(tmp_path / "log", linger_seconds=SECONDS)
    command = [sys.executable, "-m", "tests.whole_line.storming_engine", str(tmp_path / "log")]
    steps = tmp_path / "steps"  # no pipe: one that nobody reads is full after a minute
    with steps.open("w") as told:
        process = subprocess.Popen([*command, "--step-seconds", "0.005"], stdout=told)
    until(lambda: steps.read_text().count("\n") > 60 or process.poll() is not None)
    assert process.poll() is None, "the engine ended"
    yield process
    process.kill()
    process.wait()
    stop_collector(tmp_path / "log")


@pytest.fixture
def undisturbed(engine: subprocess.Popen[str]) -> Iterator[None]:
    """Afterwards the engine still runs, whoever has read what it records."""
    yield
    assert engine.poll() is None


@pytest.fixture
def visit(undisturbed: None, tmp_path: Path) -> Iterator[browsing.Visit]:
    """A browser on the log, which afterwards has complained of nothing."""
    with dashboard(tmp_path / "log") as served, browsing.chromium() as browser:
        opened = browsing.Visit(browser, served, "dark", is_live=True)
        yield opened
        assert opened.complaints == []


def page_of(page: Callable[[], None], **parameters: str) -> AppTest:
    """A page at an address, before its first drawing."""
    test = AppTest.from_function(page, default_timeout=SECONDS)
    for name, value in parameters.items():
        test.query_params[name] = value
    return test


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def draw_until(test: AppTest, condition: Callable[[AppTest], bool]) -> None:
    """Draws a page again and again, at last without an error."""
    until(lambda: condition(test.run()))
    assert not test.exception


def draw_until_chip(test: AppTest, state: str) -> None:
    """Draws a page until the log is said to be `live`, `ended`, `closed` or `lost`."""
    draw_until(test, lambda drawn: any(each.key == f"chip-{state}" for each in drawn.button))


def num_steps(text: str) -> int:
    found = re.search(r"([\d,]+) steps", text)
    return int(found[1].replace(",", "")) if found else 0


def test_a_live_log_is_said_to_be_live_and_to_have_ended(
    engine: subprocess.Popen[str], tmp_path: Path
) -> None:
    test = page_of(overview)
    draw_until_chip(test, "live")
    engine.kill()
    draw_until_chip(test, "ended")
    assert "The engine stopped without saying goodbye." in said(test)
    stop_collector(tmp_path / "log")
    draw_until_chip(test, "closed")


@pytest.mark.usefixtures("undisturbed")
def test_a_collector_that_goes_leaves_the_page_as_it_was_and_not_live(tmp_path: Path) -> None:
    test = page_of(overview)
    draw_until_chip(test, "live")
    stop_collector(tmp_path / "log")
    draw_until_chip(test, "lost")
    assert "no collector since" in said(test)
    assert len(charts(test)) == 1


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize(
    ("page", "shown"),
    [(steps, "Steps worth a look"), (recorder, "The record is whole"), (sql, "1 row.")],
)
def test_the_other_pages_read_a_log_that_is_being_written(
    page: Callable[[], None], shown: str
) -> None:
    test = page_of(page, sql="SELECT count(*) > 0 AS has_steps FROM steps")
    draw_until_chip(test, "live")
    assert shown in said(test)


@pytest.mark.usefixtures("undisturbed")
def test_a_request_of_a_live_engine_is_drawn() -> None:
    test = page_of(requests, request="0")
    draw_until(test, lambda drawn: len(charts(drawn)) == 1)
    assert "Request 0 was" in said(test)


@pytest.mark.usefixtures("undisturbed")
def test_a_step_of_a_live_engine_stays_as_it_was() -> None:
    draw_until(page_of(steps, step="3"), lambda drawn: "### Step 3:" in said(drawn))


@pytest.mark.browser
@browsing.needs_chromium
def test_the_page_follows_the_engine_by_itself(visit: browsing.Visit) -> None:
    visit.wait_for_charts()
    chip = visit.page.locator(".st-key-chip-window").first
    before = num_steps(chip.inner_text())
    until(lambda: num_steps(chip.inner_text()) > before)


@pytest.mark.browser
@browsing.needs_chromium
def test_a_button_leads_on_whatever_is_being_drawn(visit: browsing.Visit) -> None:
    for pause in range(3):
        button = visit.page.get_by_role("button", name="Report", exact=True)
        button.wait_for()
        visit.page.wait_for_timeout(800 * pause)  # another moment between two drawings
        button.click()
        visit.page.get_by_text("Why we believe it").wait_for()
        browsing.turn_to(visit.page, "Overview")
    visit.wait_for_charts()
