"""The loop: look at the log, tell what is new, wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.finding import Severity
from diagnose.life.state import is_closed
from diagnose.text.lines import Report
from diagnose.watch.engines import Engines
from diagnose.watch.news import News, Notice
from diagnose.watch.outlet import Outlet, Terminal
from telemetry.errors import StepscopeError
from telemetry.store import Log, open_log

POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is told, and when it ends. `fail_on`: end with a finding from there on."""

    level: Severity = Severity.medium
    once: bool = False
    fail_on: Severity | None = None
    poll_seconds: float = POLL_SECONDS


@dataclass(frozen=True, slots=True)
class Watched:
    """How it went: whether `fail_on` was met, and how many findings had ended with their record."""

    is_met: bool
    num_ended: int


def watch(
    target: Path, outlets: Sequence[Outlet], wishes: Wishes, stop: threading.Event | None = None
) -> Watched:
    """Tells what changes until it is stopped.

    Raises:
        StepscopeError: The log cannot be opened. Once it could, it is tried again for ever.
    """
    stop = stop or threading.Event()
    news, engines, last_error = News(level=wishes.level), Engines(), ""
    with open_log(target, background=not wishes.once) as log:
        news.is_closed = wishes.once and is_closed(log)
        while True:
            try:
                notices = _look(log, news, engines, outlets)
                last_error = ""
            except StepscopeError as error:
                if wishes.once:
                    raise
                if str(error) != last_error:
                    print(f"stepscope watch: {error}; trying again", file=sys.stderr)
                notices, last_error = [], str(error)
            is_met = _is_met(notices, wishes)
            if is_met or wishes.once or stop.wait(wishes.poll_seconds):
                return Watched(is_met, news.num_ended)


def _look(log: Log, news: News, engines: Engines, outlets: Sequence[Outlet]) -> list[Notice]:
    now = time.time_ns()
    notices = news.read(log, now)
    for outlet in outlets:
        if isinstance(outlet, Terminal) and log.is_live:
            report = Report()
            engines.write(report, log, now)
            outlet.write(report)
        outlet.tell(notices, news.sayings, now)
    return notices


def _is_met(notices: Sequence[Notice], wishes: Wishes) -> bool:
    return wishes.fail_on is not None and any(
        notice.severity >= wishes.fail_on and not notice.is_end for notice in notices
    )
