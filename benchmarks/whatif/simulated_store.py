"""KV connectors on the simulated clock: one that brings, one that keeps.

The second is a store of what evicted and ended requests had computed. What it has is decided by
the engine's own `StoreConnector`; only the transfers are times instead of copies. Nothing is
evicted from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.provoking.connector import SimulatedConnector
from engine.config import KVConnectorConfig
from engine.connectors.block_keys import BlockKeys
from engine.connectors.host_memory import HostMemoryStore
from engine.connectors.store_connector import BlocksToSave, StoreConnector
from engine.request import Request
from engine.scheduler.output import KVSaves, ModelRunnerOutput, SchedulerOutput

_NOTHING = np.empty(0, np.uint8)


class BringingConnector(SimulatedConnector):
    """Brings KV from elsewhere, and says when it will have."""

    __slots__ = ()

    def under_way(self) -> list[int]:
        """Returns when transfers that have begun will end (ns)."""
        return [due for due in self._loads.values() if due is not None]


@dataclass(slots=True)
class _Save:
    """Blocks of a request on their way to the store, until `due` (ns)."""

    request_id: str
    blocks: BlocksToSave
    due: int
    holds_blocks: bool
    is_stored: bool = False


@dataclass(slots=True, kw_only=True)
class SimulatedStore(BringingConnector):
    """Saves and loads blocks in given times.

    Args:
        config: of the connector.
        block_size: tokens of a block.
        save_seconds: how long it takes until saved blocks are in the store.
    """

    config: KVConnectorConfig
    block_size: int
    save_seconds: float = 0.0
    step_began: int = 0
    """When the newest step was decided (ns); whoever drives the engine says so."""
    _store: HostMemoryStore = field(default_factory=lambda: HostMemoryStore(1))
    _scheduler_side: StoreConnector = field(init=False)
    _saves: list[_Save] = field(default_factory=list)

    def __post_init__(self) -> None:
        keys = BlockKeys(self.block_size, b"", is_shared=False)
        self._scheduler_side = StoreConnector(self._store, self.config, keys)

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        self._requests[request.request_id] = request
        return self._scheduler_side.num_external_tokens(request, num_local_tokens)

    def delays_free(self, request: Request) -> bool:
        return self._scheduler_side.delays_free(request)

    def report(
        self, output: SchedulerOutput, result: ModelRunnerOutput, now: int
    ) -> ModelRunnerOutput:
        """Returns a step's result with the transfers in it that have ended.

        As of a real worker: saves begin, and those that have ended are noticed, before the step's
        forward pass; what was saved by `now` (ns) can be found by the next step.
        """
        noticed = [save for save in self._saves if save.due <= self.step_began]
        self._saves = [save for save in self._saves if save.due > self.step_began]
        num_before = len(self._saves)
        self._take_preempted(output)
        self._take_ended(output)
        started = frozenset(save.request_id for save in self._saves[num_before:])
        self._store_until(now)
        sent = frozenset(save.request_id for save in noticed if save.holds_blocks)
        finished = frozenset(save.request_id for save in noticed)
        # What the base reports of sends is its own idea of them, and `saves` says that it has none.
        result = SimulatedConnector.report(self, output, result, now)
        saves = KVSaves(started=started, finished=finished) if started or finished else None
        return replace(result, finished_sending=sent, kv_saves=saves)

    def under_way(self) -> list[int]:
        return [
            *BringingConnector.under_way(self),
            *(save.due for save in self._saves if not save.is_stored),
        ]

    def _take_preempted(self, output: SchedulerOutput) -> None:
        """Begins to save what evicted requests had computed."""
        for name in output.preempted_req_ids:
            request = self._requests.get(name)
            if request is None:
                continue
            left = self._scheduler_side.left_by_preemption(name, request.high_water_mark)
            self._save(name, left, holds_blocks=False)

    def _take_ended(self, output: SchedulerOutput) -> None:
        """Begins to save what ended requests leave."""
        for name in output.finished_req_ids:
            left = self._scheduler_side.take_to_save(name)
            self._save(name, left, holds_blocks=True)
            self._scheduler_side.forget(name)

    def _save(self, name: str, blocks: BlocksToSave | None, *, holds_blocks: bool) -> None:
        if blocks is not None:
            due = self.step_began + int(self.save_seconds * 1e9)
            self._saves.append(_Save(name, blocks, due, holds_blocks))

    def _store_until(self, now: int) -> None:
        """Puts into the store what has arrived by now."""
        for save in self._saves:
            if save.due <= now and not save.is_stored:
                save.is_stored = True
                for key in save.blocks.keys:
                    self._store.write(key, _NOTHING)
                self._scheduler_side.saved(save.blocks)
