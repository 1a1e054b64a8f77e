"""The publishers behind one address, told apart, and the gaps in the numbers of their messages.

A publisher numbers its messages from 0. A number that was jumped over is a message that is lost: it
is counted, never made up for. A number that falls is a publisher that has started anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from telemetry.exporters.attributes import bounded
from telemetry.records import EngineRow
from telemetry.sources.identity import engine_number
from telemetry.sources.kv_events.messages import Batch

MOST_STREAMS = 1_000
"""Publishers that one address tells apart."""
LARGEST_NUMBER = 1 << 53
"""Of a message. A publisher that sends a thousand a second takes 285,000 years for it."""


@dataclass(slots=True)
class Numbers:
    """The numbers of one publisher's messages. `expected` is None before the first."""

    expected: int | None = None
    num_lost: int = 0
    num_restarts: int = 0

    def missing_before(self, number: int) -> range:
        """Returns the messages that should have come before this one and did not."""
        if self.expected is None:
            return range(0)
        return range(self.expected if number >= self.expected else 0, number)

    def take(self, number: int) -> None:
        """Takes note of a message; what it jumps over is lost."""
        self.num_restarts += self.expected is not None and number < self.expected
        self.num_lost += len(self.missing_before(number))
        self.expected = number + 1


@dataclass(slots=True)
class Stream:
    """One publisher: an engine, as its address, topic and data-parallel rank tell."""

    engine: int
    name: str
    topic: str
    rank: int | None
    numbers: Numbers = field(default_factory=Numbers)
    description: EngineRow | None = None

    def describe(self, batch: Batch) -> EngineRow | None:
        """Returns the engine's description if this message makes it known or better."""
        size = next((e.block_size for e in batch.events if e.block_size is not None), None)
        known = self.description
        if known is not None and (known.block_size is not None or size is None):
            return None
        self.description = EngineRow(
            started_ts=batch.ts if known is None else known.started_ts,
            source="vllm",
            dp_rank=self.rank,
            block_size=size,
            api_url=f"{self.name} {self.topic}".strip(),
        )
        return self.description


class Streams:
    """The publishers behind one name: an address, or what an import is called."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[tuple[str, int | None], Stream] = {}

    def find(self, topic: bytes, rank: int | None) -> Stream | None:
        """Returns the stream of a topic and rank; None if there are too many already."""
        shown = bounded(topic.decode("utf-8", "replace"))
        found = self._known.get((shown, rank))
        if found is None and len(self._known) < MOST_STREAMS:
            engine = engine_number(
                "kv-events", self._name, shown, "" if rank is None else str(rank)
            )
            found = self._known[shown, rank] = Stream(engine, self._name, shown, rank)
        return found

    @property
    def num_lost(self) -> int:
        """Messages that never came, of all of them."""
        return sum(stream.numbers.num_lost for stream in self._all())

    @property
    def num_restarts(self) -> int:
        """How often one of them started anew."""
        return sum(stream.numbers.num_restarts for stream in self._all())

    def _all(self) -> list[Stream]:
        """Returns them at once: whoever asks for a status is another thread."""
        return list(self._known.values())
