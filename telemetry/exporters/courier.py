"""A thread that does a piece of work again and again: at its pace, and slower while it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LONGEST_PAUSE_SECONDS = 60.0

_log = logging.getLogger("stepscope.collector")


class Courier:
    """Calls `work` every `interval_seconds`, and once more when it is asked to stop.

    `work` says whether it got through. While it does not, the pauses double, up to a minute.
    """

    def __init__(self, name: str, work: Callable[[], bool], interval_seconds: float) -> None:
        self._name = name
        self._work = work
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._last_error = ""
        self._thread = threading.Thread(target=self._run, name=f"stepscope-{name}", daemon=True)
        self._thread.start()

    @property
    def is_stopping(self) -> bool:
        """Whether this round is the last."""
        return self._stop.is_set()

    def _run(self) -> None:
        pause = self._interval
        while True:
            is_last = self._stop.wait(pause)
            got_through = self._attempt()
            if is_last:
                return
            pause = self._interval if got_through else longer(pause, self._interval)

    def _attempt(self) -> bool:
        try:
            got_through = self._work()
        except Exception as error:  # the telemetry edge: told once, and tried again
            if repr(error) != self._last_error:
                _log.warning("%s: %r; trying again", self._name, error)
            self._last_error = repr(error)
            return False
        self._last_error = ""
        return got_through

    def stop(self) -> None:
        """Asks for a last round, at once."""
        self._stop.set()

    def join(self, seconds: float) -> bool:
        """Waits for the end; returns whether it came."""
        self._thread.join(timeout=max(seconds, 0.0))
        return not self._thread.is_alive()


def longer(pause: float, interval: float) -> float:
    """Returns the seconds until the next try after one in vain: twice as long, up to a minute."""
    return min(max(2 * pause, interval), max(LONGEST_PAUSE_SECONDS, interval))
