"""Readers give way to the writer, and both to nobody else's harm.

A collector runs queries of others in its own process. On Linux each thread has a niceness of its
own: the threads that only work for queries get a higher one, so a heavy query takes what is left of
the processor, and what must be written is written in time. Elsewhere nothing is changed.

Source: https://man7.org/linux/man-pages/man7/sched.7.html (the nice value, per thread on Linux)
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

READER_NICENESS = 10
_TASKS = "/proc/self/task"


def give_way(thread: int | None = None) -> None:
    """Makes a thread of this process (its native number; else the calling one) a reader's."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):  # it has ended, or is nicer already
        os.setpriority(os.PRIO_PROCESS, thread or threading.get_native_id(), READER_NICENESS)


@contextlib.contextmanager
def new_threads_give_way() -> Iterator[None]:
    """Makes all threads that start meanwhile readers'."""
    before = _threads()
    yield
    for thread in _threads() - before:
        give_way(thread)


def _threads() -> set[int]:
    if sys.platform != "linux":
        return set()
    with contextlib.suppress(OSError):
        return {int(name) for name in os.listdir(_TASKS)}
    return set()
