"""A KV connector that has what it had when a run was recorded, and takes as long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median_low

from diagnose.replay.workload import WorkRequest
from engine.request import Request


class SimulatedConnector:
    """Answers by time. `works` are the requests, by their numbers in the replay.

    Args:
        clock: of the replay, ns.
        latency_factor: how much longer everything takes than it did.
    """

    def __init__(
        self, works: Sequence[WorkRequest], clock: Callable[[], int], latency_factor: float
    ) -> None:
        self._works = works
        self._clock = clock
        self._factor = latency_factor
        self._asked: dict[int, int] = {}
        self._num_loads: dict[int, int] = {}
        self._begun_lookups: list[int] = []
        loads = [taken for work in works for taken in work.transfers.load_ns if taken is not None]
        self._typical_load_ns = median_low(loads) if loads else 0

    # ----------------------------------------------------------------------- asked by the scheduler

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        if request.number not in self._asked:
            lookup_ns = self._works[request.number].transfers.lookup_ns
            end = self._clock() + int(lookup_ns * self._factor)
            self._asked[request.number] = end
            self._begun_lookups.append(end)
        if self._clock() < self._asked[request.number]:
            return None
        reach = min(self._reach(request, num_local_tokens), request.num_tokens)
        return max(0, reach - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        answer = self._works[request.number].transfers.answer(request.num_preemptions)
        return answer is not None and answer.is_async

    def delays_free(self, request: Request) -> bool:
        return self._works[request.number].transfers.ack_ns is not None

    def _reach(self, request: Request, num_local_tokens: int) -> int:
        """Returns up to which token it has KV."""
        answer = self._works[request.number].transfers.answer(request.num_preemptions)
        return 0 if answer is None else answer.reach

    # -------------------------------------------------------------------------- asked by the replay

    def take_begun_lookups(self) -> list[int]:
        """Returns when the look-ups that were begun since the last call are answered."""
        begun, self._begun_lookups = self._begun_lookups, []
        return begun

    def next_load(self, request: int) -> tuple[int, bool]:
        """Returns how long a load that begins now takes (ns), and whether it fails."""
        recorded = self._works[request].transfers.load_ns
        nth = self._num_loads.get(request, 0)
        self._num_loads[request] = nth + 1
        taken = recorded[min(nth, len(recorded) - 1)] if recorded else self._typical_load_ns
        return int((taken or 0) * self._factor), taken is None

    def ack_ns(self, request: Request) -> int | None:
        """Returns how long the blocks of a request that has ended are still being sent.

        None where they are not.
        """
        ack_ns = self._works[request.number].transfers.ack_ns
        return None if ack_ns is None else int(ack_ns * self._factor)
