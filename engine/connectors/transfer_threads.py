"""Threads that do what may take long, beside the steps; each job when it is due."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

Job = Callable[[], None]

JOIN_SECONDS = 1.0
"""How long a thread may take to end; one that hangs in a read is left behind."""


class TransferThreads:
    """A few threads with one queue. A job that is not due yet takes up none of them.

    They are daemons, so that an engine that nobody closed does not keep its process from ending.
    """

    def __init__(self, num_threads: int, *, name: str = "kv-transfer") -> None:
        self._jobs: list[tuple[float, int, Job]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._num_busy = 0
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True)
            for index in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, *, delay_seconds: float = 0.0) -> None:
        """Has a job done, not before so many seconds have passed. Jobs must not raise."""
        with self._changed:
            due = time.monotonic() + delay_seconds
            heapq.heappush(self._jobs, (due, next(self._numbers), job))
            self._changed.notify()

    def settle(self, seconds: float) -> None:
        """Waits until no job is due or being done, at most so long."""
        with self._changed:
            self._changed.wait_for(self._is_idle, seconds)

    def close(self, *, drain_seconds: float = 0.0) -> None:
        """Ends the threads; jobs that are due have so long to be done, the others are dropped."""
        self.settle(drain_seconds)
        with self._changed:
            self._is_closed = True
            self._jobs.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _is_idle(self) -> bool:
        is_due = bool(self._jobs) and self._jobs[0][0] <= time.monotonic()
        return not is_due and not self._num_busy

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()
            with self._changed:
                self._num_busy -= 1
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """Waits for a job that is due; None once the threads are to end."""
        with self._changed:
            while not self._is_closed:
                wait = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if wait is not None and wait <= 0:
                    self._num_busy += 1
                    return heapq.heappop(self._jobs)[2]
                self._changed.wait(wait)
        return None
