"""What the API asks of the engine, in order, for a loop that looks between two steps.

A thread reads the pipe. When the API process dies, however it dies, the pipe ends; the loop is then
told to end too, and if it is stuck in a step this thread ends the process.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from multiprocessing.connection import Connection
from types import FrameType

from engine.server.messages import Shutdown, ToEngine

ORPHAN_GRACE_SECONDS = 5.0
"""How long a step may go on once the API process is gone."""


class Inbox:
    """Messages from the API, in order, for a loop that looks between steps."""

    def __init__(self, connection: Connection) -> None:
        self._queue: queue.SimpleQueue[ToEngine] = queue.SimpleQueue()
        threading.Thread(
            target=self._read, args=(connection,), name="api-reader", daemon=True
        ).start()

    def take(self, wait_seconds: float | None) -> list[ToEngine]:
        """Returns what has come, waiting for the first so long (None: for ever)."""
        messages: list[ToEngine] = []
        try:
            if wait_seconds == 0:
                messages.append(self._queue.get_nowait())
            else:
                messages.append(self._queue.get(timeout=wait_seconds))
            while True:
                messages.append(self._queue.get_nowait())
        except queue.Empty:
            return messages

    def post(self, message: ToEngine) -> None:
        """Puts in what a thread of this process has to say."""
        self._queue.put(message)

    def on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        """Handles SIGTERM as if the API had asked."""
        self._queue.put(Shutdown("SIGTERM"))

    def _read(self, connection: Connection) -> None:
        try:
            while True:
                self._queue.put(connection.recv())
        except (EOFError, OSError):
            self._queue.put(Shutdown("the API process is gone"))
        time.sleep(ORPHAN_GRACE_SECONDS)
        os._exit(1)
