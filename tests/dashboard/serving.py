"""Starts the real dashboard for a test, and ends it."""

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

ROOT = Path(__file__).parents[2]
START_SECONDS = 60
END_SECONDS = 20


@dataclass
class Served:
    """A running dashboard."""

    url: str
    process: subprocess.Popen[str]

    def end(self) -> int:
        """Ends it as a service manager would; returns its exit code."""
        self.process.terminate()
        return self.process.wait(END_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def dashboard(log: Path, *arguments: str) -> Iterator[Served]:
    """Serves a log on a free port of this machine."""
    port = free_port()
    command = [sys.executable, str(ROOT / "stepscope.py"), "dashboard", "--log", str(log)]
    process = subprocess.Popen(
        [*command, "--port", str(port), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HOME": str(log)},
        cwd=ROOT,
    )
    served = Served(f"http://127.0.0.1:{port}", process)
    try:
        _wait_until_healthy(served)
        yield served
    finally:
        if process.poll() is None:
            served.end()
        if process.stdout is not None:
            process.stdout.close()


def _wait_until_healthy(served: Served) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if served.process.poll() is not None:
            output = served.process.stdout.read() if served.process.stdout else ""
            raise AssertionError(f"the dashboard ended: {output}")
        try:
            with urllib.request.urlopen(f"{served.url}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the dashboard did not answer within {START_SECONDS} s")
