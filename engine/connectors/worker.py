"""The runner's side of a connector: brings blocks in, takes blocks out, and reports both.

The paged KV cache is touched by the step loop's thread alone, between two forward passes:

    step n      copy out what ended or was evicted ─► thread: write it to the store
                begin loads ────────────────────────► thread: read from the store into a buffer
    step n + k  copy the buffers that are full into their blocks, and report the loads

So no transfer can write into blocks that were given to somebody else meanwhile: a load that its
request no longer waits for is dropped with its buffer. And none reads them: what is saved was
copied before the next forward pass, whoever owns the blocks then. Source: decision 31.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Protocol

import numpy as np

from engine.connectors.block_store import BlockStore, Payload
from engine.connectors.faults import FaultPlan
from engine.connectors.metadata import KVConnectorMetadata, KVLoad
from engine.connectors.store_connector import BlocksToSave, StoreConnector
from engine.connectors.transfer_threads import TransferThreads
from engine.connectors.transfers import Load, Save
from engine.scheduler.output import KVSaves, ModelRunnerOutput, SchedulerOutput

MAX_BYTES_ON_THEIR_WAY = 256 << 20
"""Copies that wait to be written; while there are more, nothing further is saved."""

UNKNOWN = "it is not known why"

DRAIN_SECONDS = 1.0
"""How long saves that were begun may take when the engine ends."""


class PagedBlocks(Protocol):
    """Blocks of the paged KV cache as bytes, over all layers."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""

    def read(self, block_ids: Sequence[int]) -> Payload:
        """Returns a copy of blocks, `[len(block_ids), block_bytes]`."""

    def write(self, block_ids: Sequence[int], payload: Payload) -> None:
        """Puts `[len(block_ids), block_bytes]` into blocks."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What the runner knows of a request in its batch, before a step changes it.

    Of a request whose KV was computed from blocks that failed to load, no token counts as computed.
    """

    block_ids: Sequence[int]
    num_computed_tokens: int


@dataclass(slots=True, kw_only=True)
class TransferReport:
    """What became of transfers up to a step; see `ModelRunnerOutput`."""

    finished_recving: set[str] = field(default_factory=set)
    finished_sending: set[str] = field(default_factory=set)
    failed_recving: set[str] = field(default_factory=set)
    invalid_block_ids: set[int] = field(default_factory=set)
    recving_errors: dict[str, str] = field(default_factory=dict)
    saves_started: set[str] = field(default_factory=set)
    saves_finished: set[str] = field(default_factory=set)
    saves_failed: set[str] = field(default_factory=set)
    connector_ns: int = 0

    def added_to(self, result: ModelRunnerOutput) -> ModelRunnerOutput:
        """Returns a step's result with this in it."""
        has_saves = self.saves_started or self.saves_finished or self.saves_failed
        return replace(
            result,
            finished_recving=frozenset(self.finished_recving),
            finished_sending=frozenset(self.finished_sending),
            failed_recving=frozenset(self.failed_recving),
            invalid_block_ids=frozenset(self.invalid_block_ids),
            recving_errors=self.recving_errors,
            kv_saves=self._saves() if has_saves else None,
            connector_ns=self.connector_ns,
        )

    def _saves(self) -> KVSaves:
        return KVSaves(
            started=frozenset(self.saves_started),
            finished=frozenset(self.saves_finished),
            failed=frozenset(self.saves_failed),
        )


class KVTransferWorker:
    """Moves KV between the paged cache and a store, and draws the faults of a drill.

    Args:
        connector: the scheduler's side, which knows the keys.
        blocks: the paged cache.

    Invariants:
        All methods but `close` run on the step loop's thread.
        The end of every load, and of every save that keeps blocks, is reported once, unless a
        fault keeps it from that.
    """

    def __init__(
        self,
        store: BlockStore,
        connector: StoreConnector,
        blocks: PagedBlocks,
        *,
        faults: FaultPlan | None = None,
        num_threads: int = 2,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.connector = connector
        self.on_end: Callable[[], None] = lambda: None
        """Is called in a transfer thread when there is something to report."""
        self._store = store
        self._blocks = blocks
        self._faults = faults or FaultPlan()
        self._clock = clock
        self._threads = TransferThreads(num_threads)
        self._ended: SimpleQueue[Load | Save] = SimpleQueue()
        self._loads: dict[str, Load] = {}
        self._bytes_on_their_way = 0
        self._has_ended = threading.Event()
        connector.may_save = lambda: self._bytes_on_their_way < MAX_BYTES_ON_THEIR_WAY

    def begin_step(
        self, output: SchedulerOutput, placed: Callable[[str], Placed | None]
    ) -> TransferReport | None:
        """Does a step's transfers before its forward pass, and reports those that have ended.

        Args:
            placed: gives what the runner knew of a request before this step.

        Returns:
            None for a step that has nothing to do with transfers.
        """
        began = time.monotonic_ns()
        metadata = output.kv_connector_metadata or KVConnectorMetadata()
        left = output.preempted_req_ids or output.finished_req_ids
        if not (left or metadata.loads or metadata.given_up) and self._ended.empty():
            return None
        report = TransferReport()
        self._take_preempted(output.preempted_req_ids, placed, report)
        self._take_ended(output.finished_req_ids, placed, report)
        self._give_up([*metadata.given_up, *output.finished_req_ids], report)
        self._collect(report)
        for load in metadata.loads:
            self._begin_load(load, report)
        report.connector_ns = time.monotonic_ns() - began
        return report

    def wait(self, seconds: float) -> None:
        """Waits until there is something to report, at most so long."""
        if self._has_ended.wait(seconds):
            self._has_ended.clear()

    def settle(self, seconds: float) -> None:
        """Waits until what is due has been done, at most so long."""
        self._threads.settle(seconds)

    def close(self) -> None:
        """Ends the threads; saves that were begun have a moment to be done."""
        self._threads.close(drain_seconds=DRAIN_SECONDS)

    # ---------------------------------------------------------------------------------------- saves

    def _take_preempted(
        self,
        request_ids: frozenset[str],
        placed: Callable[[str], Placed | None],
        report: TransferReport,
    ) -> None:
        """Copies what evicted requests had computed: their blocks are somebody else's already."""
        for request_id in request_ids:
            place = placed(request_id)
            if place is None:
                continue
            left = self.connector.left_by_preemption(request_id, place.num_computed_tokens)
            if left is not None:
                self._begin_save(request_id, left, place, report, holds_blocks=False)

    def _take_ended(
        self,
        request_ids: frozenset[str],
        placed: Callable[[str], Placed | None],
        report: TransferReport,
    ) -> None:
        """Copies what ended requests leave; their blocks are kept until that is acknowledged."""
        for request_id in request_ids:
            left = self.connector.take_to_save(request_id)
            place = placed(request_id)
            if left is not None and place is not None and not self._is_expired(left):
                self._begin_save(request_id, left, place, report, holds_blocks=True)
            elif left is not None:
                self.connector.saved(left)
                report.finished_sending.add(request_id)
            self.connector.forget(request_id)

    def _is_expired(self, left: BlocksToSave) -> bool:
        """Whether the lease of kept blocks may be over, and others may write into them."""
        lease = self.connector.config.lease_seconds
        return lease is not None and self._clock() >= left.since + int(lease * 1e9)

    def _begin_save(
        self,
        request_id: str,
        left: BlocksToSave,
        place: Placed,
        report: TransferReport,
        *,
        holds_blocks: bool,
    ) -> None:
        payload = self._blocks.read([place.block_ids[each] for each in left.places])
        save = Save(
            request_id=request_id,
            blocks=left,
            payload=payload,
            fate=self._faults.draw("save"),
            acknowledgement=self._faults.draw("ack") if holds_blocks else None,
        )
        self._bytes_on_their_way += payload.nbytes
        report.saves_started.add(request_id)
        if save.fate.end != "stall":
            self._submit(save, save.fate.delay_seconds, lambda: save.write(self._store))

    def _save_ended(self, save: Save, report: TransferReport) -> None:
        """Tells how a save ended, and that its blocks may go: at once, or when that is due."""
        acknowledgement = save.acknowledgement
        if not save.is_told:
            save.is_told = True
            self._bytes_on_their_way -= save.payload.nbytes
            self.connector.saved(save.blocks)
            refused = acknowledgement is not None and acknowledgement.end == "fail"
            told = report.saves_failed if save.error or refused else report.saves_finished
            told.add(save.request_id)
            if acknowledgement is not None and acknowledgement.delay_seconds:
                self._submit(save, acknowledgement.delay_seconds, lambda: None)
                return
        if acknowledgement is not None and not acknowledgement.is_never_told:
            report.finished_sending.add(save.request_id)

    # ---------------------------------------------------------------------------------------- loads

    def _begin_load(self, wanted: KVLoad, report: TransferReport) -> None:
        first = wanted.num_local_tokens // self.connector.block_size
        end = first + wanted.num_external_tokens // self.connector.block_size
        load = Load(
            request_id=wanted.request_id,
            first=first,
            block_ids=tuple(wanted.block_ids[0][first:end]),
            keys=tuple(self.connector.keys_of(wanted.request_id)[first:end]),
            fate=self._faults.draw("load"),
        )
        if not wanted.is_async:
            self._load_now(load, report)
            return
        self._loads[load.request_id] = load
        if load.fate.end != "stall":
            self._submit(load, load.fate.delay_seconds, lambda: load.read(self._store))

    def _load_now(self, load: Load, report: TransferReport) -> None:
        """Loads as part of the step, which takes as long as that; a load that hangs hangs it."""
        if load.fate.is_never_told:
            threading.Event().wait()
        time.sleep(load.fate.delay_seconds)
        load.read(self._store)
        self._put(load, report)

    def _give_up(self, request_ids: Sequence[str], report: TransferReport) -> None:
        """Drops loads that nobody waits for: they end when they notice; one that hangs, now."""
        for request_id in request_ids:
            load = self._loads.get(request_id)
            if load is not None:
                load.is_wanted = False
                if load.fate.end == "stall":
                    del self._loads[request_id]
                    report.finished_recving.add(request_id)

    def _load_ended(self, load: Load, report: TransferReport) -> None:
        if self._loads.get(load.request_id) is not load:  # its lease ended, and it loads again
            return
        del self._loads[load.request_id]
        if load.fate.end == "lose":
            return
        report.finished_recving.add(load.request_id)
        if load.is_wanted and load.fate.end == "fail":
            report.failed_recving.add(load.request_id)
            report.recving_errors[load.request_id] = load.error or UNKNOWN
            self.connector.load_failed(load.request_id, 0)
        elif load.is_wanted:
            self._put(load, report)

    def _put(self, load: Load, report: TransferReport) -> None:
        """Puts what came into the request's blocks; the others are reported as invalid."""
        num_loaded = len(load.payloads)
        if num_loaded:
            self._blocks.write(load.block_ids[:num_loaded], np.stack(load.payloads))
        if num_loaded < len(load.block_ids):
            report.invalid_block_ids.update(load.block_ids[num_loaded:])
            report.recving_errors[load.request_id] = load.error or UNKNOWN
            self.connector.load_failed(load.request_id, load.first + num_loaded)

    # ------------------------------------------------------------------------------------ both ways

    def _submit(
        self, transfer: Load | Save, delay_seconds: float, work: Callable[[], None]
    ) -> None:
        def job() -> None:
            try:
                work()
            except Exception as error:  # a thread that dies would take later transfers with it
                transfer.error = f"{type(error).__name__}: {error}"
            self._ended.put(transfer)
            self._has_ended.set()
            self.on_end()

        self._threads.submit(job, delay_seconds=delay_seconds)

    def _collect(self, report: TransferReport) -> None:
        """Takes up whatever the threads have ended."""
        while True:
            try:
                ended = self._ended.get_nowait()
            except Empty:
                return
            if isinstance(ended, Load):
                self._load_ended(ended, report)
            else:
                self._save_ended(ended, report)
