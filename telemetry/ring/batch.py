"""What a reader copies out of a ring: whole commits, as arrays, and what was lost before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

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


def event_texts(
    events: Array, blob: bytes, end: int, oldest: int
) -> tuple[list[bytes | None], list[Loss]]:
    """Returns the text of each event, and which bytes of text were lost."""
    begin = end - len(blob)
    texts: list[bytes | None] = []
    first_lost = last_lost = None
    for offset, size in zip(
        events["blob_offset"].tolist(), events["blob_bytes"].tolist(), strict=True
    ):
        if size == 0:
            texts.append(b"")
        elif offset >= oldest:
            texts.append(blob[offset - begin : offset - begin + size])
        else:
            texts.append(None)
            first_lost = offset if first_lost is None else first_lost
            last_lost = offset + size - 1
    if first_lost is None or last_lost is None:
        return texts, []
    return texts, [Loss("blob", first_lost, last_lost)]


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
