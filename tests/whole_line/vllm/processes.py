"""The processes that a server started, and which core each of them may use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def descendants_of(pid: int) -> list[int]:
    """Returns the living children of a process, their children, and so on."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, unseen = [], [pid]
    while unseen:
        children = parents.get(unseen.pop(), [])
        found += children
        unseen += children
    return found


def title_of(pid: int) -> str:
    """Returns what a process calls itself; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pin_threads(pid: int, cores: set[int]) -> None:
    """Keeps all threads of a process on these cores."""
    for task in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the thread has ended
            os.sched_setaffinity(int(task.name), cores)
