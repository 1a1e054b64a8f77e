"""Rows of `kv_events`: an event a row, but removals in a run are one.

vLLM tells each evicted block as an event of its own. Removals of one message that follow each other
and concern the same medium and group are told as one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby

from telemetry.exporters.attributes import bounded
from telemetry.records import NULLS
from telemetry.source_records import KvEventRow
from telemetry.sources.kv_events.hashes import BlockHasher
from telemetry.sources.kv_events.messages import Batch, CacheEvent
from telemetry.sources.rows import Row

_LARGEST = NULLS["u4"] - 1


def rows_of(batch: Batch, *, engine: int, number: int, hasher: BlockHasher) -> list[Row]:
    """Returns the rows of a message; `number` is its place among the publisher's."""
    rows: list[Row] = []
    for index, event in enumerate(_merged(batch.events)):
        row = _row(event, hasher)
        row.ts, row.batch, row.event_index = batch.ts, number, index
        rows.append({"engine": engine, **asdict(row)})
    return rows


def _merged(events: list[CacheEvent]) -> Iterator[CacheEvent]:
    for place, run in groupby(events, _place_of_removal):
        if place is None:
            yield from run
        else:
            yield _together(list(run))


def _place_of_removal(event: CacheEvent) -> tuple[str | None, int | None] | None:
    return (event.medium, event.group) if event.kind == "removed" else None


def _together(removals: list[CacheEvent]) -> CacheEvent:
    hashes = [block for each in removals for block in each.hashes or ()]
    return CacheEvent(
        kind="removed",
        num_blocks=sum(each.num_blocks or 0 for each in removals),
        hashes=hashes or None,
        medium=removals[0].medium,
        group=removals[0].group,
    )


def _row(event: CacheEvent, hasher: BlockHasher) -> KvEventRow:
    return KvEventRow(
        kind=event.kind,
        num_blocks=_count(event.num_blocks),
        block_size=_count(event.block_size),
        medium=_text(event.medium),
        adapter=_text(event.adapter),
        group_index=_count(event.group),
        parent_hash=None if event.parent is None else hasher.text(event.parent),
        block_hashes=hasher.texts(event.hashes) if event.hashes else None,
    )


def _text(value: str | None) -> str | None:
    return bounded(value) if value else None


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= _LARGEST else None
