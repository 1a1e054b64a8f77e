"""A served dashboard, opened in a browser: when the verdict and the charts are there.

Beside it a page of Streamlit that says one word: what the browser needs before anything is ours.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
VERDICT = "[class*='st-key-verdict-'] :is(h3, h4)"
CHART = "[data-testid=stVegaLiteChart] :is(canvas, svg.marks)"
LONGEST_SECONDS = 120
ONE_WORD = "import streamlit as st\n\nst.set_page_config(layout='wide')\nst.markdown('### word')\n"
QUIET = [
    *("--server.address", "127.0.0.1", "--server.headless", "true"),
    *("--server.fileWatcherType", "none", "--browser.gatherUsageStats", "false"),
]
NUM_WARM = 4
REST_SECONDS = 1.0
IDLE = 0.1
"""Share of a core below which a process is at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited:
    """One visit: seconds from the navigation, CPU seconds of the server until all is there.

    A page of one word has no charts.
    """

    name: str
    verdict_seconds: float
    chart_seconds: float | None
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Serving:
    """A dashboard that runs."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """Returns what the process has taken so far, all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_until_at_rest(self) -> None:
        """Waits until the process does next to nothing for a while."""
        deadline = time.monotonic() + LONGEST_SECONDS
        before = self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(REST_SECONDS)
            now = self.cpu_seconds()
            if now - before < IDLE * REST_SECONDS:
                return
            before = now
        raise TimeoutError(f"the dashboard did not come to rest within {LONGEST_SECONDS} s")


@contextmanager
def serve(log: Path) -> Iterator[Serving]:
    """Serves a log on a free port; yields when the port answers."""
    port = _free_port()
    command = ["stepscope", "dashboard", "--log", str(log), "--port", str(port)]
    with _running(command, port, log.parent) as serving:
        yield serving


@contextmanager
def serve_one_word() -> Iterator[Serving]:
    """Serves a Streamlit page that says one word, as quiet as the dashboard is."""
    with tempfile.TemporaryDirectory() as home:
        app = Path(home) / "app.py"
        app.write_text(ONE_WORD)
        port = _free_port()
        command = ["streamlit", "run", str(app), "--server.port", str(port)]
        with _running([*command, *QUIET], port, Path(home)) as serving:
            yield serving


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _running(module: list[str], port: int, home: Path) -> Iterator[Serving]:
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        env={**os.environ, "HOME": str(home)},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(process, f"{url}/_stcore/health")
        yield Serving(url, process.pid)
    finally:
        process.terminate()
        process.wait(timeout=LONGEST_SECONDS)


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"the dashboard ended, or did not answer within {LONGEST_SECONDS} s")


@contextmanager
def chromium() -> Iterator[Any]:
    """Starts a browser without a window, and ends it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def visit(browser: Any, serving: Serving, name: str) -> Visited:
    """Opens the overview as somebody new, with an empty cache; waits for verdict and charts."""
    return _visit(browser, serving, name, "/overview", VERDICT, CHART)


def visit_one_word(browser: Any, serving: Serving) -> Visited:
    """Opens a page of one word as somebody new."""
    return _visit(browser, serving, "a Streamlit page of one word", "/", "h3", None)


def _visit(
    browser: Any, serving: Serving, name: str, path: str, first: str, last: str | None
) -> Visited:
    context = browser.new_context(viewport={"width": 1440, "height": 1200})
    page = context.new_page()
    page.set_default_timeout(LONGEST_SECONDS * 1000)
    cpu, began = serving.cpu_seconds(), time.perf_counter()
    page.goto(f"{serving.url}{path}", wait_until="commit")
    page.wait_for_selector(first)
    verdict, chart = time.perf_counter() - began, None
    if last is not None:
        page.wait_for_selector(last)
        chart = time.perf_counter() - began
    told = Visited(
        name=name,
        verdict_seconds=verdict,
        chart_seconds=chart,
        cpu_seconds=serving.cpu_seconds() - cpu,
    )
    context.close()
    return told


def visits(log: Path) -> Iterator[Visited]:
    """Yields a visit at once after the start, then others, each beside one of one word."""
    with chromium() as browser, serve_one_word() as plain:
        with serve(log) as serving:
            yield visit(browser, serving, "at once after the start")
        with serve(log) as serving:
            for name in ("first visit, cold", *["another visitor, warm"] * NUM_WARM):
                serving.wait_until_at_rest()
                yield visit_one_word(browser, plain)
                yield visit(browser, serving, name)
