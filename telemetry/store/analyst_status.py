"""Whether a step log has an analyst, and how it fares: files beside those of the collector.

DIR/analyst.lock   held (flock) by the analyst for as long as it lives: one a log
DIR/analyst.json   what it did last, for `doctor`

The analyst is `diagnose`'s; telemetry knows of it only what it says here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from telemetry.ring.place import is_held

LOCK_NAME = "analyst.lock"
STATUS_NAME = "analyst.json"
_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalystStatus:
    """What an analyst did last. Times are nanoseconds since the epoch.

    `every_seconds` is the time from one evaluation to the next: `period_seconds`, or more where an
    evaluation takes long. `error` is what the last attempt failed with; None where it did not.
    """

    pid: int
    period_seconds: float
    every_seconds: float
    started_ts: int
    num_evaluations: int = 0
    evaluated_ts: int | None = None
    took_seconds: float | None = None
    newest_ts: int | None = None
    num_open: int = 0
    error: str | None = None

    @property
    def is_stretched(self) -> bool:
        """Whether it evaluates less often than it should."""
        return self.every_seconds > self.period_seconds

    def publish(self, log: Path) -> None:
        """Writes the status, whole or not at all; a disk that is full is no reason to fail."""
        path = log / STATUS_NAME
        temporary = path.with_name(f"{STATUS_NAME}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w") as file:
                json.dump(asdict(self), file)
            os.rename(temporary, path)


def read_analyst(log: Path) -> AnalystStatus | None:
    """Returns how the log's living analyst fares; None where none lives, or it has not said yet."""
    if not has_analyst(log):
        return None
    try:
        return AnalystStatus(**json.loads((log / STATUS_NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def has_analyst(log: Path) -> bool:
    """Returns whether an analyst holds the log."""
    try:
        fd = os.open(log / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        return is_held(fd)
    finally:
        os.close(fd)


def take_analyst_lock(log: Path) -> int | None:
    """Locks the log for an analyst and returns the descriptor that holds it; None: there is one.

    Who asks whether it is locked holds it for an instant, so a held one is tried again.
    """
    fd = os.open(log / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        time.sleep(0.05)
    os.close(fd)
    return None
