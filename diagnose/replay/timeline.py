"""What is going to happen in a replay, and when."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

_What = TypeVar("_What")


class Timeline(Generic[_What]):
    """Things by their time, those of one time in the order in which they were noted."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, _What]] = []
        self._num_noted = 0

    def at(self, time_ns: int, what: _What) -> None:
        """Notes what is going to happen then."""
        self._num_noted += 1
        heapq.heappush(self._due, (time_ns, self._num_noted, what))

    def take(self, now_ns: int) -> Iterator[_What]:
        """Yields what is due, and forgets it; what is noted meanwhile for now comes too."""
        while self._due and self._due[0][0] <= now_ns:
            yield heapq.heappop(self._due)[2]

    @property
    def next_ns(self) -> int | None:
        """When the next thing happens; None where there is none."""
        return self._due[0][0] if self._due else None
