"""The lock of a step log: one collector a log, and the next one is told who has it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from telemetry.errors import CollectorError
from telemetry.ring.place import is_held
from telemetry.store.presence import LOCK_NAME, NOTICE_NAME

_PATIENCE_SECONDS = 2.0
_LONGEST_PID = 20


def take_lock(log: Path) -> int:
    """Locks the log and returns the descriptor that holds it; closing it lets go.

    Readers look at the lock for an instant, so a held one is tried again.

    Raises:
        CollectorError: Another collector has it; its pid is in the message.
    """
    fd = os.open(log / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _try_lock(log, fd):
        if time.monotonic() > deadline:
            holder = os.pread(fd, _LONGEST_PID, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise CollectorError(
                f"a collector is already running for {log} (pid {holder or 'unknown'}): "
                "one is enough for any number of engines"
            )
        time.sleep(0.05)
    _leave_pid(fd)
    return fd


def _try_lock(log: Path, fd: int) -> bool:
    """Locks `fd`, and removes the notice of a collector that was killed; returns whether it did.

    The notice goes first, or a reader would see a held lock and take the dead one's words for ours.
    Two that start at once take turns by a lock on the directory.
    """
    turn = os.open(log, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_held(fd):
            return False
        (log / NOTICE_NAME).unlink(missing_ok=True)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(turn)
    return True


def _leave_pid(fd: int) -> None:
    """Writes who holds the lock. A full disk takes no pid, and is no reason not to start."""
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        return
