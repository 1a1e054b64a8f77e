"""Readers give way to the writer, and the collector to the engines.

A collector runs queries of others in its own process. On Linux each thread has a niceness of its
own: the threads that only work for queries get a higher one, so a heavy query takes what is left of
the processor, and what must be written is written in time. Where memory runs out, the collector is
what the kernel ends first. Elsewhere nothing is changed.

Source: https://man7.org/linux/man-pages/man7/sched.7.html (the nice value, per thread on Linux)
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

READER_NICENESS = 10
EXPENDABLE = 500
"""Half of the memory of the host in favour of everybody else."""
_TASKS = "/proc/self/task"
_OUT_OF_MEMORY = Path("/proc/self/oom_score_adj")


def be_expendable() -> None:
    """Has the kernel end this process before the engines, where memory runs out.

    What it had not written is in the rings, and whoever is attached starts it again. A choice that
    the service manager has made is left alone.

    Source: https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html
    """
    with contextlib.suppress(OSError, ValueError):  # another system
        if int(_OUT_OF_MEMORY.read_text()) == 0:
            _OUT_OF_MEMORY.write_text(str(EXPENDABLE))


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
