"""Starts, finds and stops the collector process of a step log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import telemetry
from telemetry.collector.collector import DEFAULT_LINGER_SECONDS, prepare_log
from telemetry.collector.detail import DEFAULT_DETAIL, Detail
from telemetry.errors import CollectorError
from telemetry.store.presence import CollectorNotice, find_collector, is_collected

LOG_NAME = "collector.log"
_POLL_SECONDS = 0.02
_DETACH = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a program that no shell and no parent waits for. It forks before anything is imported:
DuckDB and pyarrow bring threads along, which a fork would leave half alive."""
_SOURCE_ROOT = Path(telemetry.__file__).absolute().parents[1]


def start_collector(
    log: Path,
    *,
    detail: Detail = DEFAULT_DETAIL,
    linger_seconds: float = DEFAULT_LINGER_SECONDS,
    analyst: str | None = None,
    timeout_seconds: float = 30.0,
) -> CollectorNotice:
    """Returns the log's collector: the one that runs, or a new one, detached from this process.

    Raises:
        CollectorError: It did not come up in `timeout_seconds`; its own words are in the message.
    """
    if notice := find_collector(log):
        return notice
    ensure_collector(log, detail=detail, linger_seconds=linger_seconds, analyst=analyst)
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if notice := find_collector(log):
            return notice
        time.sleep(_POLL_SECONDS)
    raise CollectorError(
        f"no collector came up for {log} in {timeout_seconds:g} s. It said: {_last_words(log)}"
    )


def ensure_collector(
    log: Path,
    *,
    detail: Detail = DEFAULT_DETAIL,
    linger_seconds: float = DEFAULT_LINGER_SECONDS,
    analyst: str | None = None,
) -> None:
    """Starts a collector unless one holds the log; does not wait for it. Cheap to call often.

    `analyst` is the module of the analyst that it keeps beside itself.

    Raises:
        CollectorError: It cannot start.
    """
    if is_collected(log):
        return
    prepare_log(log, linger_seconds=linger_seconds)
    command = [
        *(sys.executable, "-I", "-S", "-c", _DETACH),
        *(sys.executable, "-P", "-m", "telemetry.collector"),
        *("--log", str(log.absolute()), "--detail", detail, "--linger", str(linger_seconds)),
    ]
    if analyst is not None:
        command += ["--analyst", analyst]
    output = os.open(log / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        done = subprocess.run(
            command, env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            check=False,
        )  # fmt: skip
    finally:
        os.close(output)
    if done.returncode != 0:
        raise CollectorError(f"the collector of {log} did not start: {_last_words(log)}")


def environment() -> dict[str, str]:
    """Returns an environment in which our `telemetry` comes before any folder of that name."""
    paths = [str(_SOURCE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def stop_collector(log: Path, *, timeout_seconds: float = 15.0) -> bool:
    """Ends the log's collector after a last flush; returns whether there was one.

    Raises:
        CollectorError: It is still there after `timeout_seconds`.
    """
    notice = find_collector(log)
    if notice is None:
        return False
    with contextlib.suppress(ProcessLookupError):  # just ended, or of another pid namespace
        os.kill(notice.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if not is_collected(log):
            return True
        time.sleep(_POLL_SECONDS)
    raise CollectorError(
        f"the collector of {log} (pid {notice.pid}) is still running after "
        f"{timeout_seconds:g} s: see {log / LOG_NAME}"
    )


def _last_words(log: Path) -> str:
    try:
        lines = (log / LOG_NAME).read_text(errors="replace").strip().splitlines()
    except OSError:
        return "nothing"
    return " / ".join(lines[-3:]) or "nothing"
