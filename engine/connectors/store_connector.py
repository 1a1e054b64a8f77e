"""The scheduler's side of a connector to a store: what is there for a request, and what it leaves.

A look-up goes through the keys of the blocks behind the local hit until one is missing. A request
that ends while it runs leaves its full blocks, those that the store has not; they are kept until
the worker acknowledges that they were taken. One thread, the step loop's, asks all of this.

A load that failed is never offered to the same request again: it would start over with a new
look-up, and load the same for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.config import KVConnectorConfig
from engine.connectors.block_keys import BlockKeys
from engine.connectors.block_store import BlockStore
from engine.connectors.faults import Fate, FaultPlan
from engine.kv_cache.block_index import BlockKey
from engine.request import Request, RequestStatus

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksToSave:
    """Blocks of a request that the store has not: their places in its table, and their keys.

    `since` is when its blocks were asked to be kept for this (ns, monotonic).
    """

    places: tuple[int, ...]
    keys: tuple[BlockKey, ...]
    since: int


@dataclass(slots=True)
class _Asked:
    """What is remembered of a request that the scheduler has asked about.

    `asked` is when it was first looked up (ns), `fate` what becomes of that look-up, `good_end` the
    block from which on its loads have failed.
    """

    request: Request
    asked: int
    fate: Fate
    keys: list[BlockKey] = field(default_factory=list)
    good_end: int | None = None


class StoreConnector:
    """Answers the scheduler from a store.

    Args:
        clock: monotonic, in ns.
    """

    def __init__(
        self,
        store: BlockStore,
        config: KVConnectorConfig,
        keys: BlockKeys,
        *,
        load_async: bool = True,
        faults: FaultPlan | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config = config
        self.block_size = keys.block_size
        self.may_save: Callable[[], bool] = lambda: True
        """Whether there is room to hold more blocks on their way; the worker says so."""
        self._store = store
        self._keys = keys
        self._load_async = load_async
        self._faults = faults or FaultPlan()
        self._clock = clock
        self._asked: dict[str, _Asked] = {}
        self._to_save: dict[str, BlocksToSave] = {}
        self._being_saved: set[BlockKey] = set()

    # ----------------------------------------------------------------------- asked by the scheduler

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        """Returns how many tokens the store has behind the local hit; None while it cannot tell."""
        asked = self._about(request)
        if self.config.role == "kv_producer":
            return 0
        if asked.fate.is_never_told:
            return None
        if self._clock() < asked.asked + int(asked.fate.delay_seconds * _NS):
            return None
        if asked.fate.end == "fail":
            return 0
        first = num_local_tokens // self.block_size
        return self._num_present(asked, first) * self.block_size

    def loads_async(self, request: Request) -> bool:
        """Whether loads run beside the steps."""
        return self._load_async

    def delays_free(self, request: Request) -> bool:
        """Whether a request that ends leaves blocks that have to be read first."""
        if self.config.role == "kv_consumer" or request.status is not RequestStatus.RUNNING:
            return False
        computed = request.num_computed_tokens - request.num_output_placeholders
        num_full = min(computed, request.num_tokens - 1) // self.block_size
        blocks = self._missing(self._about(request), num_full)
        if blocks is None:
            return False
        self._to_save[request.request_id] = blocks
        return True

    # -------------------------------------------------------------------------- asked by the worker

    def keys_of(self, request_id: str) -> list[BlockKey]:
        """Returns the keys of the full blocks of a request that was looked up."""
        asked = self._asked[request_id]
        self._keys.extend(asked.keys, asked.request)
        return asked.keys

    def take_to_save(self, request_id: str) -> BlocksToSave | None:
        """Returns what a request that has ended leaves; None where nothing is kept of it."""
        return self._to_save.pop(request_id, None)

    def left_by_preemption(self, request_id: str, num_computed_tokens: int) -> BlocksToSave | None:
        """Returns what of so many tokens' KV the store has not; None where there is none."""
        asked = self._asked.get(request_id)
        if self.config.role == "kv_consumer" or asked is None:
            return None
        self._keys.extend(asked.keys, asked.request)
        return self._missing(asked, num_computed_tokens // self.block_size)

    def saved(self, blocks: BlocksToSave) -> None:
        """Blocks are in the store now, or are not going to be."""
        self._being_saved.difference_update(blocks.keys)

    def load_failed(self, request_id: str, block: int) -> None:
        """A load brought nothing from a block on."""
        asked = self._asked.get(request_id)
        if asked is not None:
            asked.good_end = block if asked.good_end is None else min(asked.good_end, block)

    def forget(self, request_id: str) -> None:
        """Drops what is remembered of a request, if it has ended."""
        asked = self._asked.get(request_id)
        if asked is not None and asked.request.is_finished:
            del self._asked[request_id]

    # ------------------------------------------------------------------------------------ in detail

    def _about(self, request: Request) -> _Asked:
        """Returns what is remembered of a request, its keys up to date."""
        asked = self._asked.get(request.request_id)
        if asked is None or asked.request is not request:
            asked = _Asked(request, self._clock(), self._faults.draw("lookup"))
            self._asked[request.request_id] = asked
        self._keys.extend(asked.keys, request)
        return asked

    def _num_present(self, asked: _Asked, first: int) -> int:
        """Returns how many blocks from one on the store has, in a row.

        A step needs a token to compute: of a synchronous load the last one is left.
        """
        num_tokens = asked.request.num_tokens - (not self._load_async)
        end = min(num_tokens // self.block_size, len(asked.keys))
        if asked.good_end is not None:
            end = min(end, asked.good_end)
        count = 0
        while first + count < end and self._store.has(asked.keys[first + count]):
            count += 1
        return count

    def _missing(self, asked: _Asked, num_full: int) -> BlocksToSave | None:
        if not self.may_save():
            return None
        places = [
            place
            for place, key in enumerate(asked.keys[:num_full])
            if key not in self._being_saved and not self._store.has(key)
        ]
        if not places:
            return None
        missing = tuple(asked.keys[place] for place in places)
        self._being_saved.update(missing)
        return BlocksToSave(places=tuple(places), keys=missing, since=self._clock())
