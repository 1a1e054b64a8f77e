"""What comes from one address: messages become rows, and are counted.

Not responsible for sockets (`subscriber` is).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from telemetry.sources.kv_events.endpoints import Endpoint
from telemetry.sources.kv_events.hashes import BlockHasher
from telemetry.sources.kv_events.messages import Batch, NotEventsError, decode
from telemetry.sources.kv_events.rows import rows_of
from telemetry.sources.kv_events.streams import LARGEST_NUMBER, Streams
from telemetry.sources.rows import SourceRows

EARLIEST_NS, LATEST_NS = 24 * 3600 * 10**9, 3600 * 10**9
"""How long ago, and how far ahead, a message's time may be. Others tell of a clock that is off."""
_NUMBER_BYTES = 8
_TOO_LARGE = LARGEST_NUMBER.to_bytes(_NUMBER_BYTES, "big")


@dataclass(slots=True)
class Reception:
    """One address. `shown` is it with the port that the system chose.

    `fetch` asks the address of a replay for messages; it returns payloads by number.
    """

    endpoint: Endpoint
    shown: str
    rows: SourceRows
    hasher: BlockHasher
    fetch: Callable[[str, range], dict[int, bytes]]
    num_connections: int = 0
    _streams: Streams = field(init=False)
    _num_messages: int = 0
    _num_rows: int = 0
    _num_replayed: int = 0
    _num_garbled: int = 0
    _last_ns: int | None = None

    def __post_init__(self) -> None:
        self._streams = Streams(self.endpoint.address)

    def take(self, frames: list[bytes]) -> None:
        """Takes a message: topic, number, payload; and before it those that it shows missing."""
        try:
            if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES or frames[1] >= _TOO_LARGE:
                raise NotEventsError("no topic, number and payload")
            topic, number, payload = frames[0], int.from_bytes(frames[1], "big"), frames[2]
            batch = self._decoded(payload)
        except NotEventsError:
            self._num_garbled += 1
            return
        for missed, content in self._missing(topic, number, batch):
            self._store(topic, missed, content)
        self._store(topic, number, batch)

    @staticmethod
    def _decoded(payload: bytes) -> Batch:
        batch, now = decode(payload), time.time_ns()
        if not now - EARLIEST_NS <= batch.ts <= now + LATEST_NS:
            raise NotEventsError("its time cannot be: compare the clocks")
        return batch

    def _missing(self, topic: bytes, number: int, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """Yields the messages before this one that did not come, as far as they are still kept."""
        stream = self._streams.find(topic, batch.rank)
        if stream is None or self.endpoint.replay is None:
            return
        missing = stream.numbers.missing_before(number)
        if missing:
            for missed, payload in sorted(self.fetch(self.endpoint.replay, missing).items()):
                try:
                    yield missed, self._decoded(payload)
                    self._num_replayed += 1
                except NotEventsError:
                    self._num_garbled += 1

    def _store(self, topic: bytes, number: int, batch: Batch) -> None:
        stream = self._streams.find(topic, batch.rank)
        if stream is None:
            self._num_garbled += 1
            return
        stream.numbers.take(number)
        if (description := stream.describe(batch)) is not None:
            self.rows.describe(stream.engine, description)
        new = rows_of(batch, engine=stream.engine, number=number, hasher=self.hasher)
        self._num_rows += self.rows.add("kv_events", new)
        self._num_messages += 1
        self._num_garbled += batch.num_unknown
        self._last_ns = time.time_ns()

    def status(self) -> str:
        """Returns what came, in a few words."""
        parts = [f"{self._num_messages:,} messages, {self._num_rows:,} rows"]
        if self._last_ns is not None:
            parts.append(f"the last {(time.time_ns() - self._last_ns) / 1e9:,.1f} s ago")
        for number, told in (
            (self._streams.num_lost, "messages lost"),
            (self._num_replayed, "of lost ones replayed"),
            (self._streams.num_restarts, "restarts"),
            (self._num_garbled, "not understood"),
        ):
            if number:
                parts.append(f"{number:,} {told}")
        return f"{self.shown} ({self.num_connections:,} connected): {', '.join(parts)}"
