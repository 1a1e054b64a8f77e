"""Keeps a collector running for as long as this process lives: whoever is attached restarts it."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from telemetry.collector.collector import DEFAULT_LINGER_SECONDS
from telemetry.collector.detail import DEFAULT_DETAIL, Detail
from telemetry.collector.process import ensure_collector
from telemetry.errors import CollectorError

CHECK_SECONDS = 1.0

_log = logging.getLogger("stepscope")


def keep_collector(
    log: Path,
    *,
    detail: Detail = DEFAULT_DETAIL,
    linger_seconds: float = DEFAULT_LINGER_SECONDS,
    analyst: str | None = None,
) -> threading.Thread:
    """Starts the log's collector unless it runs, and again whenever it has died.

    Returns at once; the work is done by a daemon thread. A collector that does not start is
    reported once, and tried again with growing pauses: the ring keeps the newest records meanwhile.
    """

    def keep() -> None:
        pause, reported = CHECK_SECONDS, False
        while True:
            try:
                ensure_collector(log, detail=detail, linger_seconds=linger_seconds, analyst=analyst)
                pause, reported = CHECK_SECONDS, False
            except (CollectorError, OSError) as error:
                if not reported:
                    _log.warning("%s; trying again", error)
                pause, reported = min(2 * pause, 60.0), True
            time.sleep(pause)

    thread = threading.Thread(target=keep, name="stepscope-collector-keeper", daemon=True)
    thread.start()
    return thread
