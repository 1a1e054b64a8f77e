"""The collector's side of the ring: maps it read-only and copies what is new.

A reader never writes and is never waited for. It copies first and looks afterwards at how far the
engine had got meanwhile: rows that may have been overwritten during the copy are thrown away and
counted as lost. What is lost is always the oldest, so a loss is one range a region.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from telemetry.errors import RingError
from telemetry.records import NULLS
from telemetry.ring import layout as lay
from telemetry.ring.batch import (
    Array,
    Loss,
    Position,
    RingBatch,
    RingState,
    dense_places,
    event_texts,
    last_rows,
)
from telemetry.ring.header import description_from, slot_offset
from telemetry.ring.place import is_held
from telemetry.ring.sanity import NONSENSE, TimeSpan, check_commits, check_layout, check_words

NS_PER_DAY = 86_400 * 1_000_000_000
MAX_COMMITS = 4096
"""Commits of one batch at most: bounds the memory of a collector that has fallen behind."""


class RingReader:
    """A ring, mapped read-only."""

    def __init__(self, path: Path) -> None:
        """Opens the ring at `path`.

        Raises:
            RingError: It is not a ring, or not one that this version can read.
            OSError: It cannot be opened.
        """
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            self._map()
        except BaseException:
            os.close(self._fd)
            raise
        self._times = TimeSpan(
            self.word("wall_anchor_ns"),
            self.word("monotonic_anchor_ns"),
            self.identity.get("boot_id"),
        )
        self._fence = threading.Lock()

    def _map(self) -> None:
        size = self._size = os.fstat(self._fd).st_size
        if size < lay.HEADER_BYTES:
            raise RingError(f"{self.path} is no ring: it has {size:,} bytes")
        self._memory = mmap.mmap(self._fd, size, prot=mmap.PROT_READ)
        self._state = np.frombuffer(self._memory, dtype=np.uint64, count=lay.STATE_BYTES // 8)
        if int(self._state[0]) != lay.MAGIC:
            raise RingError(f"{self.path} is no ring: it does not begin with its mark")
        try:
            self._read_layout(size)
        except NONSENSE as error:
            raise RingError(f"{self.path} has a layout that cannot be read: {error!r}") from error

    def _read_layout(self, size: int) -> None:
        num_bytes = int(self._state[lay.WORD["layout_bytes"]])
        start = lay.LAYOUT_OFFSET
        self.identity: dict[str, Any] = json.loads(self._memory[start : start + num_bytes])
        self.engine = int(self.identity["engine"], 16)
        self._words = check_words(self.identity["state"])
        self.layout = lay.Layout.from_json(self.identity, size)
        check_layout(self.layout)
        self._rows = {
            region.name: self._row_view(region)
            for region in self.layout.regions.values()
            if region.row_bytes
        }
        dense = self.layout.regions["step_requests"]
        self._dense = {
            column.name: np.frombuffer(
                self._memory, f"<{column.dtype}", count=dense.capacity, offset=column.offset
            )
            for column in dense.columns
        }

    def _row_view(self, region: lay.Region) -> Array:
        return np.frombuffer(
            self._memory, region.row_dtype(), count=region.capacity, offset=region.offset
        )

    @property
    def log(self) -> Path | None:
        """The step log that the ring belongs to; None leaves it to whoever finds it."""
        log = self.identity.get("log")
        return None if log is None else Path(log)

    @property
    def is_held(self) -> bool:
        """Whether the engine lives: it holds the lock until its end, however that comes."""
        return is_held(self._fd)

    def word(self, name: str) -> int:
        """Returns one word of the header; 0 where the ring's version has no such word."""
        index = self._words.get(name)
        return 0 if index is None else int(self._state[index])

    def state(self) -> RingState:
        """Returns the header as it stands."""
        self.check_size()
        step, rss = self.word("current_step"), self.word("rss_bytes")
        null = NULLS["u8"]
        return RingState(
            published=self.word("published"),
            heartbeat_ns=self.word("heartbeat_ns"),
            current_step=None if step == null else step,
            phase=self.word("phase"),
            phase_since_ns=self.word("phase_since_ns"),
            num_steps=self.word("num_steps"),
            num_events=self.word("num_events"),
            num_preemptions=self.word("num_preemptions"),
            recorder_errors=self.word("recorder_errors"),
            closed=bool(self.word("closed")),
            rss_bytes=None if rss == null else rss,
            description_version=self.word("description_version"),
        )

    def check_size(self) -> None:
        """Checks that the file is as long as it was: to read where it ends kills this process.

        Raises:
            RingError: Somebody cut it.
        """
        size = os.fstat(self._fd).st_size
        if size < self._size:
            raise RingError(f"{self.path} was cut from {self._size:,} to {size:,} bytes")

    def check_time(self, ts: int, what: str) -> None:
        """Checks a time that the ring gives.

        Raises:
            RingError: The engine cannot have written it.
        """
        self._times.check(ts, what)

    def description(self) -> tuple[int, dict[str, Any]]:
        """Returns the engine's description and its version; 0 and nothing before the first.

        Raises:
            RingError: It does not come to rest, or is damaged.
        """
        error: ValueError | None = None
        for _ in range(8):
            version = self.word("description_version")
            if version == 0:
                return 0, {}
            self._order()
            start = slot_offset(version)
            slot = self._memory[start : start + lay.DESCRIPTION_SLOT_BYTES]
            self._order()
            if self.word("description_version") != version:
                continue
            try:
                return version, description_from(slot)
            except ValueError as damaged:
                error = damaged
        raise RingError(f"{self.path}: the engine's description cannot be read: {error!r}")

    def read(self, position: Position, max_commits: int = MAX_COMMITS) -> RingBatch | None:
        """Returns what was committed after `position`, up to the next UTC day; None if nothing."""
        self.check_size()
        found = self._read_commits(position.commits, max_commits)
        if found is None:
            return None
        first, commits = found
        check_commits(commits, self.layout)
        wanted = {
            name: (int(commits[f"{name}_begin"][0]), int(commits[f"{name}_end"][-1]))
            for name in (*lay.ROW_REGIONS, "blob")
        }
        copied = self._copy(wanted)
        self._order()
        kept = {name: self._still_there(name, *span) for name, span in wanted.items()}
        return self._batch(position, first, commits, wanted, kept, copied)

    def _read_commits(self, begin: int, max_commits: int) -> tuple[int, Array] | None:
        region = self.layout.regions["commits"]
        published = self.word("published")
        self._order()
        begin = max(begin, published - region.capacity)
        end = min(published, begin + max_commits)
        if begin >= end:
            return None
        commits = self._ring_slice(self._rows["commits"], begin, end)
        self._order()
        torn = max(self.word("published") + 1 - region.capacity - begin, 0)
        commits = commits[torn:]
        if not len(commits):
            return self._read_commits(begin + torn, max_commits)
        days = commits["ts"] // NS_PER_DAY
        other = np.flatnonzero(days != days[0])
        return begin + torn, commits[: int(other[0])] if len(other) else commits

    def _copy(self, wanted: dict[str, tuple[int, int]]) -> dict[str, Any]:
        """Copies rows [begin, end) of each region; of a region that was lapped, only its last."""
        spans = {
            name: (max(begin, end - self.layout.regions[name].capacity), end)
            for name, (begin, end) in wanted.items()
        }
        copied: dict[str, Any] = {
            name: self._ring_slice(self._rows[name], *spans[name]) for name in ("steps", "events")
        }
        copied["step_requests"] = {
            name: self._ring_slice(column, *spans["step_requests"])
            for name, column in self._dense.items()
        }
        copied["blob"] = self._blob_slice(*spans["blob"])
        return copied

    def _still_there(self, name: str, begin: int, end: int) -> int:
        """Returns the first row of [begin, end] that was surely not overwritten."""
        oldest = self.word(f"reserved_{name}") - self.layout.regions[name].capacity
        return min(max(begin, oldest), end)

    def _batch(
        self,
        position: Position,
        first: int,
        commits: Array,
        wanted: dict[str, tuple[int, int]],
        kept: dict[str, int],
        copied: dict[str, Any],
    ) -> RingBatch:
        ends = {name: end for name, (_, end) in wanted.items()}
        events = last_rows(copied["events"], ends["events"] - kept["events"])
        found = event_texts(events, copied["blob"], ends["blob"], kept["blob"])
        num_dense = ends["step_requests"] - kept["step_requests"]
        begins = {name: getattr(position, name) for name in lay.ROW_REGIONS}
        losses = [
            Loss(name, begins[name], kept[name] - 1)
            for name in lay.ROW_REGIONS
            if kept[name] > begins[name]
        ]
        return RingBatch(
            begin=position,
            position=Position(
                first + len(commits), ends["steps"], ends["events"], ends["step_requests"]
            ),
            ts=int(commits["ts"][0]),
            commits=commits,
            steps=last_rows(copied["steps"], ends["steps"] - kept["steps"]),
            first_event=kept["events"],
            events=events,
            texts=found.texts,
            contents=found.contents,
            first_step_request=kept["step_requests"],
            step_requests={
                **{name: last_rows(a, num_dense) for name, a in copied["step_requests"].items()},
                **dense_places(commits, kept["step_requests"]),
            },
            losses=(*losses, *found.losses),
        )

    def _ring_slice(self, rows: Array, begin: int, end: int) -> Array:
        capacity = len(rows)
        place, num = begin % capacity, end - begin
        if place + num <= capacity:
            return rows[place : place + num].copy()
        return np.concatenate([rows[place:], rows[: place + num - capacity]])

    def _blob_slice(self, begin: int, end: int) -> bytes:
        region = self.layout.regions["blob"]
        place, num = begin % region.capacity, end - begin
        start, stop = region.offset + place, region.offset + region.capacity
        if start + num <= stop:
            return self._memory[start : start + num]
        return (
            self._memory[start:stop]
            + self._memory[region.offset : region.offset + num - (stop - start)]
        )

    def _order(self) -> None:
        """Keeps what was read before from being read after (Arm reorders loads)."""
        self._fence.acquire()
        self._fence.release()

    def close(self) -> None:
        """Lets go of the mapping. The ring stays where it is."""
        self._rows.clear()
        self._dense.clear()
        del self._state
        self._memory.close()
        os.close(self._fd)
