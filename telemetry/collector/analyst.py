"""The analyst beside a collector: started with it, again when it has died, and ended with it.

Which program that is the composition root says (`diagnose.analyst`): telemetry knows no rules. One
that a killed collector left behind goes on, and the next collector keeps it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from telemetry.store.analyst_status import STATUS_NAME, has_analyst, read_analyst

_log = logging.getLogger("stepscope.collector")

CHECK_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
_LIVED_SECONDS = 60.0
"""One that lived for so long has started well: the next start comes at once."""
_GOODBYE_SECONDS = 5.0


class AnalystKeeper:
    """Keeps an analyst for a log. Without a `module` it keeps none."""

    def __init__(
        self, log: Path, module: str | None, environ: dict[str, str] | None = None
    ) -> None:
        """`module` is what `python -m` runs, in `environ` or else this process' environment."""
        self._log = log
        self._module = module
        self._environ = environ
        self._child: subprocess.Popen[bytes] | None = None
        self._next_check = 0.0
        self._pause = CHECK_SECONDS
        self._started = 0.0

    def keep(self) -> None:
        """Starts an analyst where none runs. Cheap to call often; never raises."""
        now = time.monotonic()
        if self._module is None or now < self._next_check:
            return
        self._next_check = now + CHECK_SECONDS
        if self._child is not None and self._child.poll() is None:
            return
        if self._child is not None:
            self._mourn(now)
        elif not has_analyst(self._log):
            self._start(now)

    def _mourn(self, now: float) -> None:
        """Notes that the child has ended, and when the next one is started."""
        assert self._child is not None
        lived = now - self._started
        self._pause = (
            CHECK_SECONDS if lived > _LIVED_SECONDS else min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        )
        if not has_analyst(self._log):  # else it found one that runs, and left
            _log.warning(
                "the analyst ended (%s); the next one starts in %.0f s",
                self._child.returncode, self._pause,
            )  # fmt: skip
        self._child, self._next_check = None, now + self._pause

    def _start(self, now: float) -> None:
        command = [sys.executable, "-P", "-m", str(self._module), "--log", str(self._log)]
        try:
            self._child = subprocess.Popen(
                command, env=self._environ, stdin=subprocess.DEVNULL, stdout=sys.stderr,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            _log.warning("the analyst does not start: %s", error)
            self._next_check = now + LONGEST_PAUSE_SECONDS
        self._started = now

    def end(self) -> None:
        """Ends the analyst, also one that an earlier collector has started."""
        if self._module is None:
            return
        if self._child is not None:
            self._child.terminate()
            self._wait(self._child)
        elif (status := read_analyst(self._log)) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(status.pid, signal.SIGTERM)
        (self._log / STATUS_NAME).unlink(missing_ok=True)

    @staticmethod
    def _wait(child: subprocess.Popen[bytes]) -> None:
        try:
            child.wait(_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
