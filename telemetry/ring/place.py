"""Where ring files lie, and how one comes into being.

A ring is a plain file: opened, given its whole size with `posix_fallocate` (a bare `ftruncate` on
a full tmpfs succeeds, and the first write kills the engine with SIGBUS), mapped, and renamed from
`.tmp` once its header is complete. `flock` on it says that its engine lives; the lock is taken on
a descriptor of its own, since the mapping keeps a copy of the one it was made from.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
SUFFIX = ".ring"


def ring_name(engine: int) -> str:
    """Returns the file name of an engine's ring."""
    return f"{engine:016x}{SUFFIX}"


def default_ring_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns $STEPSCOPE_RING_DIR, or this user's folder in shared memory."""
    if configured := environ.get("STEPSCOPE_RING_DIR"):
        return Path(configured).absolute()
    root = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    return root / f"stepscope-{os.getuid()}"


def ring_directories(log: Path | None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns where an engine puts its ring, and a collector looks for it: best place first."""
    places = [default_ring_directory(environ)]
    if log is not None:
        places.append(log.absolute() / "rings")
    return places


@dataclass(slots=True)
class RingFile:
    """A ring file that was just made and is still named `.tmp`."""

    path: Path
    memory: mmap.mmap
    lock_fd: int

    @property
    def temporary_path(self) -> Path:
        """The name it has until `publish`."""
        return self.path.with_name(self.path.name + ".tmp")

    def publish(self) -> None:
        """Gives the complete ring its name."""
        os.rename(self.temporary_path, self.path)

    def discard(self) -> None:
        """Removes the file again."""
        self.temporary_path.unlink(missing_ok=True)
        os.close(self.lock_fd)
        with contextlib.suppress(BufferError):  # a view of it is still alive
            self.memory.close()


def create_ring_file(directory: Path, engine: int, ring_bytes: int) -> RingFile:
    """Returns a new locked ring file of `ring_bytes` zero bytes in `directory`.

    Raises:
        OSError: There is no room, or the directory cannot be used.
    """
    _make_private(directory)
    path = directory / ring_name(engine)
    temporary = path.with_name(path.name + ".tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    lock_fd = os.open(temporary, flags, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _allocate(lock_fd, ring_bytes)
        memory = _map(temporary, ring_bytes)
    except BaseException:
        temporary.unlink(missing_ok=True)
        os.close(lock_fd)
        raise
    return RingFile(path, memory, lock_fd)


def _make_private(directory: Path) -> None:
    """Makes `directory`, or checks that nobody else prepared it for us.

    A folder that somebody chose (a volume shared by containers) keeps its owner and mode.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.name != f"stepscope-{os.getuid()}":
        return
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to user {found.st_uid}, not to {os.getuid()}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(0o700)


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for _ in range(0, size, 1 << 20):  # macOS
        os.write(fd, bytes(1 << 20))
    os.ftruncate(fd, size)


def _map(path: Path, size: int) -> mmap.mmap:
    """Maps the file with its pages in place, so that no step pays for a page fault."""
    fd = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
    finally:
        os.close(fd)


def is_held(fd: int) -> bool:
    """Returns whether another process holds the lock of an open file."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
