"""Rows of `kv_events`: an event a row, but removals in a run are one.

vLLM tells each evicted block as an event of its own. Removals of one message that follow each other
and concern the same medium and group are told as one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import assert_never

from telemetry.exporters.attributes import bounded
from telemetry.records import NULLS
from telemetry.source_records import KvEventRow
from telemetry.sources.kv_events.hashes import BlockHasher
from telemetry.sources.kv_events.messages import Batch, Cleared, Event, Removed, Stored
from telemetry.sources.rows import Row

_LARGEST = NULLS["u4"] - 1


def rows_of(batch: Batch, *, engine: int, number: int, hasher: BlockHasher) -> list[Row]:
    """Returns the rows of a message; `number` is its place among the publisher's."""
    rows = []
    for index, event in enumerate(_merged(batch.events)):
        row = _row(event, hasher)
        row.ts, row.batch, row.event_index = batch.ts, number, index
        rows.append({"engine": engine, **asdict(row)})
    return rows


def _merged(events: list[Event]) -> Iterator[Event]:
    for place, run in groupby(events, _place_of_removal):
        if place is None:
            yield from run
            continue
        medium, group = place
        blocks = [b for event in run if isinstance(event, Removed) for b in event.block_hashes]
        yield Removed(block_hashes=blocks, medium=medium, group_idx=group)


def _place_of_removal(event: Event) -> tuple[str | None, int | None] | None:
    return (event.medium, event.group_idx) if isinstance(event, Removed) else None


def _row(event: Event, hasher: BlockHasher) -> KvEventRow:
    match event:
        case Stored():
            parent = event.parent_block_hash
            return KvEventRow(
                kind="stored",
                num_blocks=len(event.block_hashes),
                block_size=_count(event.block_size),
                medium=_text(event.medium),
                adapter=_text(event.lora_name) or _number(event.lora_id),
                group_index=_count(event.group_idx),
                parent_hash=None if parent is None else hasher.text(parent),
                block_hashes=hasher.texts(event.block_hashes),
            )
        case Removed():
            return KvEventRow(
                kind="removed",
                num_blocks=len(event.block_hashes),
                medium=_text(event.medium),
                group_index=_count(event.group_idx),
                block_hashes=hasher.texts(event.block_hashes),
            )
        case Cleared():
            return KvEventRow(kind="cleared")
    assert_never(event)


def _text(value: str | None) -> str | None:
    return bounded(value) if value else None


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= _LARGEST else None
