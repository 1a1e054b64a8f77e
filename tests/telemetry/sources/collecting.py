"""`stepscope` as a user runs it: the collector with its flags, and commands beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from telemetry.store.collector_status import ask_status
from telemetry.store.presence import find_collector
from tests.telemetry.collector.builders import wait_until

STEPSCOPE = (sys.executable, "-m", "stepscope")


@contextmanager
def collecting(log: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `stepscope collect` on a log with flags, until the block ends."""
    rings = log.parent / "rings"
    rings.mkdir(exist_ok=True)
    command = [*STEPSCOPE, "collect", "--log", str(log), *flags]
    environ = {**os.environ, "STEPSCOPE_RING_DIR": str(rings)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as collector:
        try:
            wait_until(lambda: source_lines(log))
            yield collector
        finally:
            collector.terminate()


def source_lines(log: Path) -> list[str]:
    """Returns what the sources of a log's collector say of themselves; none before they listen."""
    notice = find_collector(log)
    status = None if notice is None else ask_status(notice)
    lines = [] if status is None else [source.text for source in status.sources]
    return [] if any("not listening yet" in line for line in lines) else lines


def stepscope(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [*STEPSCOPE, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def answers(log: Path, sql: str) -> list[dict[str, Any]]:
    """Returns what `stepscope query` answers."""
    done = stepscope("query", sql, "--log", str(log), "--format", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows
