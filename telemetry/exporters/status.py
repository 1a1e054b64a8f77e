"""What the collector's exporters say about themselves, for `doctor`: `DIR/exports.json`.

A file and not a row, since it must be there when the log cannot be written.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

STATUS_NAME = "exports.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalStatus:
    """How the export of one signal goes. Times are nanoseconds since the epoch.

    `error` is what the last attempt failed with; None where it did not.
    """

    signal: str
    endpoint: str
    protocol: str
    num_sent: int
    num_failures: int
    num_passed_over: int
    last_sent_ts: int | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportStatus:
    """All that a collector exports. `problems` are settings that could not be followed."""

    pid: int
    metrics_url: str | None
    signals: tuple[SignalStatus, ...]
    problems: tuple[str, ...]

    def publish(self, log: Path) -> None:
        """Writes the status, whole or not at all; a disk that is full is no reason to fail."""
        path = log / STATUS_NAME
        temporary = path.with_name(f"{STATUS_NAME}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w") as file:
                json.dump(asdict(self), file)
            os.rename(temporary, path)


def read_status(log: Path, pid: int) -> ExportStatus | None:
    """Returns what the collector `pid` of a log exports; None where it exports nothing."""
    try:
        found = json.loads((log / STATUS_NAME).read_text())
        signals = tuple(SignalStatus(**signal) for signal in found.pop("signals"))
        problems = tuple(found.pop("problems"))
        status = ExportStatus(**found, signals=signals, problems=problems)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return status if status.pid == pid else None


def remove_status(log: Path) -> None:
    """Removes the status: its collector has ended."""
    with contextlib.suppress(OSError):
        (log / STATUS_NAME).unlink(missing_ok=True)
