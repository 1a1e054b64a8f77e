"""Whether a step log has a live collector, and where to ask it.

DIR/collector.lock   held (flock) by the collector for as long as it lives
DIR/collector.json   pid, socket, schema version: written once it answers queries
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from telemetry.ring.place import is_held

LOCK_NAME = "collector.lock"
NOTICE_NAME = "collector.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorNotice:
    """What a live collector says about itself in `collector.json`."""

    pid: int
    socket: str
    schema: int
    started_ns: int
    detail: str
    ring_directories: list[str]
    kept: str = ""
    """How long the log is kept, in words; empty where the collector does not say."""

    tcp_port: int | None = None
    """Where it listens for readers of other machines; None where it does not."""

    def publish(self, log: Path) -> None:
        """Writes the notice, whole or not at all."""
        path = log / NOTICE_NAME
        temporary = path.with_name(f"{NOTICE_NAME}.{os.getpid()}.tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(asdict(self), file)
        os.rename(temporary, path)


def is_collected(log: Path) -> bool:
    """Returns whether a collector holds the log."""
    try:
        fd = os.open(log / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        return is_held(fd)
    finally:
        os.close(fd)


def find_collector(log: Path) -> CollectorNotice | None:
    """Returns the notice of a live collector that answers; None where there is none (yet)."""
    if not is_collected(log):
        return None
    try:
        found = json.loads((log / NOTICE_NAME).read_text())
        return CollectorNotice(
            **{f.name: found[f.name] for f in fields(CollectorNotice) if f.name in found}
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
