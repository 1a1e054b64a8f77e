"""What a reader copies out of a ring: whole commits, as arrays, and what was lost before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from telemetry.records import NULLS
from telemetry.ring.layout import HASHES_BEGIN

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a ring has been read: numbers of commits and of rows."""

    commits: int = 0
    steps: int = 0
    events: int = 0
    step_requests: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows that were overwritten before they were read. In `blob` they are bytes."""

    region: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RingState:
    """The words of the header that an engine rewrites in place, at one moment."""

    published: int
    heartbeat_ns: int
    current_step: int | None
    phase: int
    phase_since_ns: int
    num_steps: int
    num_events: int
    num_preemptions: int
    recorder_errors: int
    closed: bool
    rss_bytes: int | None
    description_version: int


@dataclass(frozen=True, slots=True)
class RingBatch:
    """Rows of whole commits, copied out of a ring, all of one UTC day."""

    begin: Position
    position: Position
    """Where the next batch begins."""
    ts: int
    """Time of the first commit; the batch belongs to its UTC day."""
    commits: Array
    steps: Array
    first_event: int
    """Number (`seq`) of the first event."""
    events: Array
    texts: list[bytes | None]
    """What the blob holds of each event (`split_blob`); empty: nothing; None: overwritten."""
    contents: list[bytes | None]
    """Content hashes of each event; None: it has none, or they were overwritten."""
    first_step_request: int
    step_requests: dict[str, Array]
    losses: tuple[Loss, ...]


def split_blob(text: bytes | None) -> tuple[bytes, bytes]:
    """Returns the JSON and the block hashes of an event; empty where it has none."""
    json_text, _, hashes = (text or b"").partition(HASHES_BEGIN)
    return json_text, hashes


def last_rows(rows: Array, num: int) -> Array:
    """Returns the last `num` rows."""
    return rows[len(rows) - num :]


@dataclass(slots=True)
class EventTexts:
    """What lies in the blob for some events, one entry an event, and which bytes were lost."""

    texts: list[bytes | None]
    contents: list[bytes | None]
    losses: list[Loss]


def event_texts(events: Array, blob: bytes, end: int, oldest: int) -> EventTexts:
    """Returns the text and the content hashes of each event; a ring may know only of text."""
    begin = end - len(blob)
    found = EventTexts([], [], [])
    first_lost = last_lost = None
    offsets, sizes = events["blob_offset"].tolist(), events["blob_bytes"].tolist()
    for offset, size, behind in zip(offsets, sizes, _content_sizes(events), strict=True):
        text: bytes | None = b""
        content: bytes | None = None if behind is None else b""
        if (size or behind) and offset < oldest:
            text = content = None
            first_lost = offset if first_lost is None else first_lost
            last_lost = offset + size + (behind or 0) - 1
        else:
            place = offset - begin + size
            text = blob[place - size : place] if size else b""
            content = blob[place : place + behind] if behind else content
        found.texts.append(text)
        found.contents.append(content)
    if first_lost is not None and last_lost is not None:
        found.losses.append(Loss("blob", first_lost, last_lost))
    return found


def _content_sizes(events: Array) -> list[int | None]:
    if "content_bytes" not in (events.dtype.names or ()):
        return [None] * len(events)
    null = NULLS["u4"]
    return [None if size == null else size for size in events["content_bytes"].tolist()]


def dense_places(commits: Array, kept: int) -> dict[str, Array]:
    """Returns step, time and slot of each dense row from `kept` on."""
    begins = commits["step_requests_begin"].astype(np.int64)
    ends = commits["step_requests_end"].astype(np.int64)
    number = np.arange(kept, int(ends[-1]))
    owner = np.searchsorted(ends, number, side="right")
    return {
        "step": commits["step"][owner],
        "ts": commits["ts"][owner],
        "slot": (number - begins[owner]).astype(np.uint32),
    }
