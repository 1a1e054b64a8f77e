"""A KV connector that has what it had when a run was recorded, and takes as long."""

from __future__ import annotations

from collections.abc import Callable

from diagnose.replay.workload import WorkRequest
from engine.request import Request


class SimulatedConnector:
    """Answers by time. `works` are the requests, by their numbers in the replay.

    Args:
        clock: of the replay, ns.
        latency_factor: how much longer everything takes than it did.
    """

    def __init__(
        self, works: list[WorkRequest], clock: Callable[[], int], latency_factor: float
    ) -> None:
        self._works = works
        self._clock = clock
        self._factor = latency_factor
        self._asked: dict[int, int] = {}
        self._num_loads: dict[int, int] = {}
        self._begun_lookups: list[int] = []

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        transfers = self._works[request.number].transfers
        if request.number not in self._asked:
            end = self._clock() + int(transfers.lookup_ns * self._factor)
            self._asked[request.number] = end
            self._begun_lookups.append(end)
        if self._clock() < self._asked[request.number]:
            return None
        answer = transfers.answer(request.num_preemptions)
        reach = 0 if answer is None else min(answer.reach, request.num_tokens)
        return max(0, reach - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        answer = self._works[request.number].transfers.answer(request.num_preemptions)
        return answer is not None and answer.is_async

    def delays_free(self, request: Request) -> bool:
        return self._works[request.number].transfers.ack_ns is not None

    def take_begun_lookups(self) -> list[int]:
        """Returns when the look-ups that were begun since the last call are answered."""
        begun, self._begun_lookups = self._begun_lookups, []
        return begun

    def next_load(self, request: int) -> tuple[int, bool]:
        """Returns how long a load that begins now takes (ns), and whether it fails."""
        recorded = self._works[request].transfers.load_ns
        nth = self._num_loads.get(request, 0)
        self._num_loads[request] = nth + 1
        if not recorded:
            return 0, False
        taken = recorded[min(nth, len(recorded) - 1)]
        return int((taken or 0) * self._factor), taken is None

    def ack_ns(self, request: int) -> int:
        """Returns how long the blocks of a request that has ended are still being sent."""
        return int((self._works[request].transfers.ack_ns or 0) * self._factor)
