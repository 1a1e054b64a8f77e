"""Lays rows, events and commits into a ring's memory.

Order, in `publish`: reserve, fence, rows, fence, commit, fence, `published`. A reader trusts what
lies below `published` and, after its copy, above `reserved_*` less a region's capacity. The fence
is a lock let go and taken again: Python has no other, and Arm reorders stores.
"""

from __future__ import annotations

import operator
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from telemetry.records import NULLS, Event, StepRequests, StepRow
from telemetry.ring.layout import WORD, Layout, RingColumn, null_of
from telemetry.ring.packing import EventPacker, RowPacker

MAX_BLOB_BYTES = 64 * 1024
"""Longest text of one event; an eighth of the region where that is less."""

_PUBLISHED = WORD["published"]
_NUM_STEPS = WORD["num_steps"]
_NUM_EVENTS = WORD["num_events"]
_RESERVED_STEPS = WORD["reserved_steps"]
_RESERVED_EVENTS = WORD["reserved_events"]
_RESERVED_DENSE = WORD["reserved_step_requests"]
_RESERVED_BLOB = WORD["reserved_blob"]
_COMMIT = struct.Struct("<QqQQQQQQQQ")
_NO_STEP = NULLS["u8"]


class RingWriter:
    """Writes into the regions of one ring. One thread calls it.

    `count_error` is told of what could not be written whole.
    """

    def __init__(
        self,
        buffer: memoryview,
        state: memoryview,
        layout: Layout,
        count_error: Callable[[str], None],
    ) -> None:
        self._buffer = buffer
        self._state = state
        self._layout = layout
        self._count_error = count_error
        self._fence = threading.Lock()
        self._fence.acquire()
        self._num_steps = self._num_events = self._num_dense = 0
        self._blob_end = self._published = 0
        self._prepare_regions()

    def _prepare_regions(self) -> None:
        regions = self._layout.regions
        self._steps, self._events = regions["steps"], regions["events"]
        self._dense, self._blob = regions["step_requests"], regions["blob"]
        self._commits = regions["commits"]
        self._step_packer = RowPacker(self._steps, [c.name for c in self._steps.columns])
        blob_limit = min(MAX_BLOB_BYTES, self._blob.capacity // 8)
        hashes_limit = self._blob.capacity // 64 * 8
        self._event_packer = EventPacker(self._events, blob_limit, hashes_limit)
        self._dense_get: Callable[[StepRequests], tuple[Any, ...]] = operator.attrgetter(
            *(c.name for c in self._dense.columns)
        )
        self._dense_columns = tuple(
            (self._column(c, self._dense.capacity), null_of(c.dtype)) for c in self._dense.columns
        )

    def _column(self, column: RingColumn, capacity: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(
            self._buffer, dtype=f"<{column.dtype}", count=capacity, offset=column.offset
        )

    def fence(self) -> None:
        """Keeps what was written before from being seen after what follows."""
        self._fence.release()
        self._fence.acquire()

    def release(self) -> None:
        """Lets go of the memory."""
        self._dense_columns = ()

    def publish(
        self, step: StepRow | None, events: Sequence[Event], requests: StepRequests | None
    ) -> None:
        """Writes a step, or events between steps, and makes them count."""
        texts = [self._text_of(event) for event in events] if events else ()
        contents = [self._event_packer.contents_of(event) for event in events]
        num_steps = self._num_steps + (step is not None)
        num_events = self._num_events + len(events)
        num_dense = self._num_dense + (self._length(requests) if requests is not None else 0)
        blob_end = self._blob_end + sum(map(len, texts)) + sum(map(len, filter(None, contents)))
        self._reserve(num_steps, num_events, num_dense, blob_end)
        misfits = 0
        if step is not None:
            region = self._steps
            offset = region.offset + self._num_steps % region.capacity * region.row_bytes
            misfits += self._step_packer.pack_into(self._buffer, offset, step)
        if events:
            misfits += self._write_events(events, texts, contents)
        if requests is not None and num_dense > self._num_dense:
            self._write_dense(requests, num_dense - self._num_dense)
        self._fence.release()
        self._fence.acquire()
        self._commit(step, events, (num_steps, num_events, num_dense, blob_end))
        if misfits:
            self._count_error(f"{misfits} values did not fit their column and became NULL")

    def _reserve(self, num_steps: int, num_events: int, num_dense: int, blob_end: int) -> None:
        state = self._state
        state[_RESERVED_STEPS] = num_steps
        state[_RESERVED_EVENTS] = num_events
        state[_RESERVED_DENSE] = num_dense
        state[_RESERVED_BLOB] = blob_end
        self._fence.release()
        self._fence.acquire()

    def _commit(
        self, step: StepRow | None, events: Sequence[Event], ends: tuple[int, int, int, int]
    ) -> None:
        """Writes the commit entry, then makes it count."""
        region, state = self._commits, self._state
        number, ts = (_NO_STEP, events[0].ts) if step is None else (step.step, step.ts)
        offset = region.offset + self._published % region.capacity * region.row_bytes
        steps, num_events, dense, blob = ends
        _COMMIT.pack_into(
            self._buffer, offset, number, ts, self._num_steps, steps, self._num_events, num_events,
            self._num_dense, dense, self._blob_end, blob,
        )  # fmt: skip
        self._num_steps, self._num_events, self._num_dense, self._blob_end = ends
        self._published += 1
        self._fence.release()
        self._fence.acquire()
        state[_PUBLISHED] = self._published
        state[_NUM_STEPS] = steps
        state[_NUM_EVENTS] = num_events

    def _write_events(
        self, events: Sequence[Event], texts: Sequence[bytes], contents: Sequence[bytes | None]
    ) -> int:
        region, pack_into = self._events, self._event_packer.pack_into
        misfits, blob = 0, self._blob_end
        rows = zip(events, texts, contents, strict=True)
        for index, (event, text, content) in enumerate(rows, self._num_events):
            offset = region.offset + index % region.capacity * region.row_bytes
            num_behind = None if content is None else len(content)
            misfits += pack_into(self._buffer, offset, event, (blob, len(text), num_behind))
            if content:
                text += content
            if text:
                self._write_text(blob, text)
                blob += len(text)
        return misfits

    def _write_text(self, begin: int, text: bytes) -> None:
        region = self._blob
        place = begin % region.capacity
        head = min(len(text), region.capacity - place)
        start = region.offset + place
        self._buffer[start : start + head] = text[:head]
        if head < len(text):
            self._buffer[region.offset : region.offset + len(text) - head] = text[head:]

    def _text_of(self, event: Event) -> bytes:
        text, was_cut = self._event_packer.text_of(event)
        if was_cut:
            self._count_error(f"the text of an event of kind {event.kind} was too long and is cut")
        return text

    def _length(self, requests: StepRequests) -> int:
        """Returns how many dense rows the ring can take of these: all, or none."""
        num = len(requests.request)
        if num <= self._dense.capacity:
            return num
        self._count_error(
            f"a step of {num:,} requests does not fit the ring's {self._dense.capacity:,} dense "
            "rows and is recorded without them: raise STEPSCOPE_RING_MB"
        )
        return 0

    def _write_dense(self, requests: StepRequests, num: int) -> None:
        begin = self._num_dense % self._dense.capacity
        end = begin + num
        head = self._dense.capacity - begin
        for (column, null), values in zip(
            self._dense_columns, self._dense_get(requests), strict=True
        ):
            if values is None:
                values = null
            elif num > head:
                column[begin:] = values[:head]
                column[: num - head] = values[head:]
                continue
            if num <= head:
                column[begin:end] = values
            else:
                column[begin:] = column[: num - head] = values
