"""The clients of a replay: who sends the next request, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from diagnose.replay.workload import Workload


class SimulatedClients:
    """In an open loop requests come when they came; in a closed one each end makes room for one.

    Args:
        random: gives numbers from 0 to below 1, by which pauses are drawn; None: they come in the
            order in which they were recorded.
    """

    def __init__(self, workload: Workload, random: Callable[[], float] | None) -> None:
        self._works = workload.requests
        self._clients = workload.clients
        self._rate = workload.rate_factor
        self._random = random
        self._num_sent = len(self._works)
        if self._clients.kind == "closed" and self._clients.num_in_flight is not None:
            self._num_sent = min(self._num_sent, self._clients.num_in_flight)

    def first_arrivals(self) -> Iterator[tuple[int, int]]:
        """Yields those that wait for no end: when each comes (ns), and its number in the replay."""
        for index, work in enumerate(self._works[: self._num_sent]):
            if work.arrived_ns >= 0:
                yield int((work.arrived_ns + work.off_edge_ns) / self._rate), index

    def next_arrival(self, now_ns: int) -> tuple[int, int] | None:
        """Returns what follows on an end: a client that has its answer thinks, and asks again."""
        if self._clients.kind != "closed" or self._num_sent >= len(self._works):
            return None
        index, self._num_sent = self._num_sent, self._num_sent + 1
        return now_ns + int(self._pause_before(index) / self._rate), index

    def _pause_before(self, index: int) -> int:
        pauses = self._clients.think_ns
        if self._random is not None:
            return pauses[int(self._random() * len(pauses))]
        num_first = self._clients.num_in_flight or 0
        return pauses[(index - num_first) * len(pauses) // max(1, len(self._works) - num_first)]
