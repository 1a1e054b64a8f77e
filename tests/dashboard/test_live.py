"""The dashboard on a log that is being written: it follows, and says when the engine goes."""

from __future__ import annotations

import os
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
from tests.dashboard.test_views import recorder, requests, sql, steps

SECONDS = 60


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A recorded engine in an endless storm, with its collector; the log is `tmp_path / "log"`."""
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / "rings"))
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "log"))
    start_collector(tmp_path / "log", linger_seconds=SECONDS)
    command = [sys.executable, "-m", "tests.whole_line.storming_engine", str(tmp_path / "log")]
    process = subprocess.Popen(
        [*command, "--step-seconds", "0.005"],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    for _ in range(60):
        assert process.stdout.readline(), "the engine ended"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    stop_collector(tmp_path / "log")


def overview() -> None:
    from dashboard import app

    app.show_overview()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def num_steps(text: str) -> int:
    found = re.search(r"([\d,]+) steps", text)
    return int(found[1].replace(",", "")) if found else 0


def test_a_live_log_is_said_to_be_live_and_to_have_ended(
    engine: subprocess.Popen[str], tmp_path: Path
) -> None:
    test = AppTest.from_function(overview, default_timeout=SECONDS)
    until(lambda: any(b.key == "chip-live" for b in test.run().button))
    assert not test.exception
    engine.kill()
    until(lambda: any(b.key == "chip-ended" for b in test.run().button))
    said = "\n".join(str(m.value) for m in test.markdown)
    assert "The engine stopped without saying goodbye." in said
    stop_collector(tmp_path / "log")
    until(lambda: any(b.key == "chip-closed" for b in test.run().button))
    assert not test.exception


def test_a_collector_that_goes_leaves_the_page_as_it_was_and_not_live(
    engine: subprocess.Popen[str], tmp_path: Path
) -> None:
    test = AppTest.from_function(overview, default_timeout=SECONDS)
    until(lambda: any(b.key == "chip-live" for b in test.run().button))
    stop_collector(tmp_path / "log")
    until(lambda: any(b.key == "chip-lost" for b in test.run().button))
    assert "no collector since" in "\n".join(str(m.value) for m in test.markdown)
    assert len(test.get("vega_lite_chart")) == 1
    assert not test.exception
    assert engine.poll() is None


@pytest.mark.parametrize("page", [steps, recorder, sql])
def test_the_other_pages_read_a_log_that_is_being_written(
    page: Callable[[], None], engine: subprocess.Popen[str]
) -> None:
    test = AppTest.from_function(page, default_timeout=SECONDS)
    test.query_params["sql"] = "SELECT count(*) > 0 AS has_steps FROM steps"
    until(lambda: any(b.key == "chip-live" for b in test.run().button))
    assert not test.exception
    said = "\n".join(str(element.value) for element in [*test.markdown, *test.caption])
    shown = {
        steps: "Steps worth a look",
        recorder: "The record is whole",
        sql: "1 row.",
    }
    assert shown[page] in said
    assert engine.poll() is None


def test_a_request_of_a_live_engine_is_drawn(engine: subprocess.Popen[str]) -> None:
    test = AppTest.from_function(requests, default_timeout=SECONDS)
    test.query_params["request"] = "0"
    until(lambda: len(test.run().get("vega_lite_chart")) == 1)
    assert not test.exception
    assert any("Request 0 was" in str(m.value) for m in test.markdown)
    assert engine.poll() is None


def test_a_step_of_a_live_engine_stays_as_it_was(engine: subprocess.Popen[str]) -> None:
    test = AppTest.from_function(steps, default_timeout=SECONDS)
    test.query_params["step"] = "3"
    until(lambda: any(m.value.startswith("### Step 3\\:") for m in test.run().markdown))
    assert not test.exception
    assert engine.poll() is None


@pytest.mark.browser
@browsing.needs_chromium
def test_the_page_follows_the_engine_by_itself(
    engine: subprocess.Popen[str], tmp_path: Path
) -> None:
    with dashboard(tmp_path / "log") as served, browsing.chromium() as browser:
        visit = browsing.Visit(browser, served, "dark", is_live=True)
        visit.wait_for_charts()
        chip = visit.page.locator(".st-key-chip-window").first
        before = num_steps(chip.inner_text())
        until(lambda: num_steps(chip.inner_text()) > before)
        assert visit.complaints == []
        assert engine.poll() is None


@pytest.mark.browser
@browsing.needs_chromium
def test_a_button_leads_on_whatever_is_being_drawn(
    engine: subprocess.Popen[str], tmp_path: Path
) -> None:
    with dashboard(tmp_path / "log") as served, browsing.chromium() as browser:
        visit = browsing.Visit(browser, served, "dark", is_live=True)
        for pause in range(3):
            button = visit.page.get_by_role("button", name="Report", exact=True)
            button.wait_for()
            visit.page.wait_for_timeout(800 * pause)  # another moment between two drawings
            button.click()
            visit.page.get_by_text("Why we believe it").wait_for()
            browsing.turn_to(visit.page, "Overview")
        visit.wait_for_charts()
        assert visit.complaints == []
        assert engine.poll() is None
