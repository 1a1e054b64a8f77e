"""What the collector tells a service manager: that it is ready, and that it gets on.

systemd's protocol (sd_notify), spoken with a datagram socket of the standard library. Where nobody
asked (no NOTIFY_SOCKET) nothing is sent. A watchdog that hears no progress for WatchdogSec restarts
the collector; the rings keep meanwhile what was not drained.

Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class Supervisor:
    """The service manager that started this process, or nobody."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._is_watching = bool(environ.get("WATCHDOG_USEC")) and environ.get(
            "WATCHDOG_PID", str(os.getpid())
        ) == str(os.getpid())

    def ready(self) -> None:
        """Says that queries are answered and rings are drained from now on."""
        self._send(f"READY=1\nMAINPID={os.getpid()}")

    def progress(self) -> None:
        """Says that a pass over the rings has ended, or that its wait is a wanted one."""
        if self._is_watching:
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        """Sends a datagram. A manager that does not listen is no reason to stop collecting."""
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.setblocking(False)
            sender.sendto(text.encode(), self._address)
