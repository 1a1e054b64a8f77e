"""Rows with a value of their own in every column, and small rings to write them to."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from telemetry.records import (
    Event,
    EventKind,
    RequestAdmitted,
    RequestArrived,
    RequestFinished,
    RunClock,
    StepRequests,
    StepRow,
    columns_of,
)
from telemetry.ring import Position, RingBatch, RingReader, RingRecorder

KIB = 1024


def small_ring(directory: Path, ring_bytes: int = 256 * KIB, **settings: Any) -> RingRecorder:
    return RingRecorder(directory, RunClock.start(), ring_bytes=ring_bytes, **settings)


def filled(cls: type, **given: Any) -> Any:
    """Returns a row in which every column differs from its neighbours and from NULL."""
    values: dict[str, Any] = {}
    for index, column in enumerate(columns_of(cls), 1):
        values[column.name] = {
            "str": f"text {index} é\x1b",
            "bool": True,
            "f8": index + 0.5,
            "u4[]": [index, 0, 7],
            "hashes": b"",
            "i4": -index,
            "i8": -index,
        }.get(column.dtype, index)
    if issubclass(cls, Event):
        default = next(f.default for f in fields(cls) if f.name == "kind")
        values["kind"] = default if isinstance(default, int) else EventKind.load_failed
    return cls(**(values | given))


def blank(cls: type, **given: Any) -> Any:
    """Returns a row in which every column that can be NULL is NULL."""
    values: dict[str, Any] = {c.name: None for c in columns_of(cls) if c.nullable}
    return cls(**(values | given))


def step(number: int, ts: int = 1_000) -> StepRow:
    """Returns a step whose other numbers follow from its own."""
    return StepRow(
        step=number, ts=ts, num_running=number % 1000, num_waiting=(number + 1) % 1000,
        num_preemptions_total=number,
    )  # fmt: skip


def events(number: int, ts: int = 1_000) -> list[Event]:
    """Returns the events of step `number`: one of each way in which an event travels."""
    return [
        RequestArrived(step=number, ts=ts, request=number, request_id=f"r{number}"),
        RequestAdmitted(step=number, ts=ts, request=number, num_hit_tokens=number % 1000),
        Event(kind=EventKind.engine_failed, step=number, ts=ts, text=f"text {number}"),
        RequestFinished(step=number, ts=ts, request=number, reason=1, drafts_placed=[1, 2]),
    ]


def dense(number: int, num: int = 3) -> StepRequests:
    request = np.arange(num, dtype=np.uint32) + number
    return StepRequests(
        request=request, num_blocks=request * 2, zero_reason=np.full(num, 255, np.uint8)
    )


def read_all(reader: RingReader, position: Position | None = None) -> list[RingBatch]:
    batches: list[RingBatch] = []
    position = position or Position()
    while (batch := reader.read(position)) is not None:
        batches.append(batch)
        position = batch.position
    return batches
