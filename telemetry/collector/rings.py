"""The rings that a collector drains: found in their directories, each with its read position."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.collector.prefix_tree import PrefixTree, relearn
from telemetry.errors import RingError
from telemetry.ring.batch import Position
from telemetry.ring.layout import ROW_REGIONS
from telemetry.ring.place import SUFFIX, is_held
from telemetry.ring.reader import RingReader

_log = logging.getLogger("stepscope.collector")

_RETRY_SECONDS = 2.0
_STALE_SECONDS = 60.0


@dataclass(slots=True)
class AttachedRing:
    """A ring that is being drained. Positions move only once the rows are committed."""

    reader: RingReader
    claim_fd: int | None = None
    position: Position = field(default_factory=Position)
    dense_position: Position = field(default_factory=Position)
    prefixes: PrefixTree = field(default_factory=PrefixTree)
    is_new: bool = True
    """Nothing of it has been written yet."""
    is_finished: bool = False
    """It was drained to its end, and that is committed."""
    described: dict[str, int] = field(default_factory=dict)
    """Version of the engine's description in each day's file."""
    block_size: int | None = None
    """Tokens of the engine's KV blocks, as its description says."""
    heartbeat_ns: int = 0
    """The last heartbeat that was written."""
    next_heartbeat: float = 0.0
    next_anchor: float = 0.0

    @property
    def engine(self) -> int:
        """The engine that writes it."""
        return self.reader.engine

    def resume(
        self,
        main: Mapping[int, tuple[Position, int, bool]],
        dense: Mapping[int, tuple[Position, int, bool]],
    ) -> None:
        """Takes up the positions that the step log holds.

        Dense rows are written before the others, so a dense position that lies behind means that
        dense rows were not wanted for a while: they go on from where the others are.
        """
        known = main.get(self.engine)
        self.is_new = known is None
        self.position, _, self.is_finished = known or (Position(), 0, False)
        known_dense = dense.get(self.engine)
        self.dense_position = self.position
        if known_dense is not None and known_dense[0].commits >= self.position.commits:
            self.dense_position = known_dense[0]
        self.described.clear()
        self.next_heartbeat = 0.0
        if self.is_new:
            self.next_anchor = 0.0
        if self.prefixes.next_seq < self.position.events:
            relearn(self.prefixes, self.reader, self.position.events)

    def fill_ratio(self, position: Position) -> float:
        """Returns the largest part of a region that lies between here and `position`."""
        regions = self.reader.layout.regions
        largest = 0.0
        for name in ("commits", *ROW_REGIONS):
            num = getattr(position, name) - getattr(self.position, name)
            largest = max(largest, num / regions[name].capacity)
        return largest

    def remove(self) -> None:
        """Removes the ring's file: all of it is in the log."""
        self.reader.path.unlink(missing_ok=True)
        if self.claim_fd is not None:
            _claim_path(self.reader.path).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Lets go of the ring and leaves it where it is."""
        self.reader.close()
        if self.claim_fd is not None:
            os.close(self.claim_fd)
            self.claim_fd = None


class RingWatch:
    """Finds the rings of one step log in the directories where engines put them."""

    def __init__(self, log: Path, directories: Iterable[Path]) -> None:
        self.log = log.resolve()
        self.directories = list(dict.fromkeys(directories))
        self._ignored: dict[tuple[Path, int], float] = {}
        """Files that are not ours, and until when not to look again."""
        self._left_alone: dict[Path, str] = {}

    def find(self, known: Iterable[Path]) -> list[AttachedRing]:
        """Returns rings that are not among `known` and are this log's to drain."""
        known, found = set(known), []
        for directory in self.directories:
            for path in _entries(directory):
                if path.suffix == ".tmp":
                    _remove_stale(path)
                elif path.suffix == SUFFIX and path not in known:
                    ring = self._attach(path)
                    if ring is not None:
                        found.append(ring)
        return found

    def ignore(self, path: Path, reason: str) -> None:
        """Leaves a ring alone from now on, and keeps the reason for whoever asks."""
        self._ignored[(path, _inode(path))] = float("inf")
        self._left_alone[path] = reason

    def left_alone(self) -> dict[Path, str]:
        """Returns the rings that still lie there and cannot be read, with the reason."""
        self._left_alone = {p: why for p, why in self._left_alone.items() if p.exists()}
        return dict(self._left_alone)

    def _attach(self, path: Path) -> AttachedRing | None:
        try:
            key = (path, path.stat().st_ino)
            if self._ignored.get(key, 0.0) > time.monotonic():
                return None
            reader = RingReader(path)
        except FileNotFoundError:
            return None
        except (RingError, OSError) as error:
            _log.warning("a ring is left alone: %s", error)
            self.ignore(path, str(error))
            return None
        if reader.log is None:
            claim_fd = _claim(path)
            if claim_fd is not None:
                return AttachedRing(reader, claim_fd)
            self._ignored[key] = time.monotonic() + _RETRY_SECONDS
        elif reader.log == self.log:
            return AttachedRing(reader)
        else:
            self._ignored[key] = float("inf")
        reader.close()
        return None


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _claim_path(ring: Path) -> Path:
    return ring.with_name(ring.name + ".claim")


def _claim(ring: Path) -> int | None:
    """Returns a locked descriptor that says whose a ring without a log is; None if another's."""
    fd = os.open(_claim_path(ring), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _remove_stale(path: Path) -> None:
    """Removes a half-made ring whose maker has died."""
    try:
        if time.time() - path.stat().st_mtime < _STALE_SECONDS:
            return
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if not is_held(fd):
            path.unlink(missing_ok=True)
    finally:
        os.close(fd)
