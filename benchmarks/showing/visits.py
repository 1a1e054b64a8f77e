"""A served dashboard, opened in a browser: when the verdict and the charts are there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
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
REST_SECONDS = 1.0
IDLE = 0.1
"""Share of a core below which a process is at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited:
    """One visit: seconds from the navigation, CPU seconds of the dashboard until the charts."""

    name: str
    verdict_seconds: float
    chart_seconds: float
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "stepscope", "dashboard", "--log", str(log)]
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        env={**os.environ, "HOME": str(log.parent)},
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
    context = browser.new_context(viewport={"width": 1440, "height": 1200})
    page = context.new_page()
    page.set_default_timeout(LONGEST_SECONDS * 1000)
    cpu, began = serving.cpu_seconds(), time.perf_counter()
    page.goto(f"{serving.url}/overview", wait_until="commit")
    page.wait_for_selector(VERDICT)
    verdict = time.perf_counter() - began
    page.wait_for_selector(CHART)
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
    """Yields a visit at once after the start, the first one after it, and one more."""
    with chromium() as browser:
        with serve(log) as serving:
            yield visit(browser, serving, "at once after the start")
        with serve(log) as serving:
            serving.wait_until_at_rest()
            yield visit(browser, serving, "first visit, cold")
            serving.wait_until_at_rest()
            yield visit(browser, serving, "another visitor, warm")
