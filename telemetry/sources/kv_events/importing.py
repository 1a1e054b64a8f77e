"""Brings captured KV events into a step log."""

from __future__ import annotations

import time
from pathlib import Path

from telemetry.errors import ImportRefused
from telemetry.sources.importing import Import
from telemetry.sources.kv_events.captures import Captured, Unread, captured_in
from telemetry.sources.kv_events.hashes import BlockHasher, key_of
from telemetry.sources.kv_events.rows import rows_of
from telemetry.sources.kv_events.streams import LARGEST_NUMBER, Streams

EARLIEST_TS = 1_420_070_400 * 10**9
"""2015: a message of before was written by a clock that was never set."""
LATEST_NS = 24 * 3600 * 10**9


def import_file(job: Import, path: Path, name: str) -> None:
    """Brings what is in a file, as of the engine that is called `name`.

    Raises:
        ImportRefused: The file cannot be read, or holds no KV events.
        StepscopeError: The log's key for block hashes cannot be used.
    """
    reading = _Reading(job, name, BlockHasher(key_of(job.log)))
    for message in captured_in(path):
        if isinstance(message, Unread):
            job.told.unread(message.why)
        else:
            reading.add(message)
    if not job.told.num_read:
        why = job.told.examples[0] if job.told.examples else "the file is empty"
        raise ImportRefused(f"{path} has no KV events: {why}")
    reading.finish()


class _Reading:
    """What has been read so far, and what is to be told of it."""

    def __init__(self, job: Import, name: str, hasher: BlockHasher) -> None:
        self._job = job
        self._hasher = hasher
        self._streams = Streams(name)
        self._latest_ts = time.time_ns() + LATEST_NS
        self._num_unknown = 0

    def add(self, message: Captured) -> None:
        batch = message.batch
        stream = self._streams.find(message.topic, batch.rank)
        is_possible = (
            0 <= message.number < LARGEST_NUMBER and EARLIEST_TS <= batch.ts <= self._latest_ts
        )
        if stream is None or not is_possible:
            self._job.told.unread(f"message {message.number}: its time or number cannot be")
            return
        stream.numbers.take(message.number)
        if (description := stream.describe(batch)) is not None:
            self._job.describe(stream.engine, description)
        rows = rows_of(batch, engine=stream.engine, number=message.number, hasher=self._hasher)
        self._job.add("kv_events", rows)
        self._job.told.read("message")
        self._num_unknown += batch.num_unknown

    def finish(self) -> None:
        notes = self._job.told.notes
        if num_lost := self._streams.num_lost:
            notes.append(f"{num_lost:,} messages are missing: what happened in them is not known")
        if num_restarts := self._streams.num_restarts:
            notes.append(f"the numbers start over {num_restarts:,} times: the engine was restarted")
        if self._num_unknown:
            notes.append(f"{self._num_unknown:,} events are of kinds not known here")
        notes.append("KV events name no request: who stored or lost a block is not known")
