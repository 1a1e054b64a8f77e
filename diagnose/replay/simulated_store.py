"""A KV connector to a store that a replay fills itself, with what its own requests leave.

What a store holds for an evicted request depends on when it was evicted, and on who ended before:
under other settings it is something else than in the record. So the engine's own connector decides
what is saved and what is there; only how long that takes is from the record. What a request found
when it first came may have been there before the record began, and stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.replay.simulated_connector import SimulatedConnector
from diagnose.replay.timeline import Timeline
from diagnose.replay.workload import Workload, WorkRequest
from engine.config import KVConnectorConfig
from engine.connectors.block_keys import BlockKeys
from engine.connectors.host_memory import HostMemoryStore
from engine.connectors.store_connector import BlocksToSave, StoreConnector
from engine.request import Request

_KEEPING = ("HostMemoryConnector", "SharedDirectoryConnector")
_NOTHING = np.empty(0, np.uint8)


def keeps(config: KVConnectorConfig) -> bool:
    """Whether a connector is one of ours, and saves what requests leave."""
    return config.connector in _KEEPING and config.role != "kv_consumer"


@dataclass(frozen=True, slots=True)
class _Typical:
    """How long a save takes until it is there, and until its blocks are given back; ns."""

    save_ns: int
    ack_ns: int

    @classmethod
    def of(cls, works: Sequence[WorkRequest]) -> _Typical:
        """Returns the medians of a record; 0 where nothing was saved."""
        saves = [taken for work in works for taken in work.transfers.save_ns]
        acks = [ns for work in works if (ns := work.transfers.ack_ns) is not None]
        return cls(
            int(np.median(saves)) if saves else 0,
            int(np.median(acks)) if acks else 0,
        )


class SimulatedStore(SimulatedConnector):
    """Has what was saved in the replay. Nothing is evicted from it."""

    def __init__(
        self, workload: Workload, config: KVConnectorConfig, clock: Callable[[], int]
    ) -> None:
        works = workload.requests
        super().__init__(works, clock, workload.latency_factor)
        self._typical = _Typical.of(works)
        self._store = HostMemoryStore(max_bytes=1)
        answers = [each for work in works for each in work.transfers.answers if each.reach]
        self._load_async = all(each.is_async for each in answers)
        self._kept = StoreConnector(
            self._store,
            config,
            BlockKeys(workload.config.cache.block_size, b"", is_shared=False),
            load_async=self._load_async,
            clock=clock,
        )
        self._failed: set[int] = set()
        self._saves: Timeline[BlocksToSave] = Timeline()

    # ----------------------------------------------------------------------- asked by the scheduler

    def loads_async(self, request: Request) -> bool:
        return self._load_async

    def delays_free(self, request: Request) -> bool:
        return self._kept.delays_free(request)

    def _reach(self, request: Request, num_local_tokens: int) -> int:
        self._take_stored()
        kept = self._kept.num_external_tokens(request, num_local_tokens) or 0
        return max(num_local_tokens + kept, self._brought(request))

    def _brought(self, request: Request) -> int:
        """Returns up to which token a request found KV when it first came."""
        if request.number in self._failed:
            return 0
        answer = self._works[request.number].transfers.answer(0)
        return 0 if answer is None else answer.reach

    # -------------------------------------------------------------------------- asked by the replay

    def preempted(self, request: Request) -> None:
        """Begins to save what an evicted request had computed."""
        name = request.request_id
        self._save(self._kept.left_by_preemption(name, request.high_water_mark))

    def next_load(self, request: int) -> tuple[int, bool]:
        taken, fails = super().next_load(request)
        if fails:
            self._failed.add(request)
            self._kept.load_failed(str(request), 0)
        return taken, fails

    def ack_ns(self, request: Request) -> int | None:
        name = request.request_id
        left = self._kept.take_to_save(name)
        self._save(left)
        self._kept.forget(name)
        if left is None:
            return None
        recorded = super().ack_ns(request)
        return int(self._typical.ack_ns * self._factor) if recorded is None else recorded

    def _save(self, blocks: BlocksToSave | None) -> None:
        if blocks is not None:
            taken = int(self._typical.save_ns * self._factor)
            self._saves.at(self._clock() + taken, blocks)

    def _take_stored(self) -> None:
        """Puts into the store what has arrived by now."""
        for blocks in self._saves.take(self._clock()):
            for key in blocks.keys:
                self._store.write(key, _NOTHING)
            self._kept.saved(blocks)
