"""What the scheduler knows between two decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from enum import Enum, auto

from engine.config import EngineConfig
from engine.connectors import ECConnector, KVConnector
from engine.encoder_cache import EncoderCache, EncoderItem
from engine.kv_cache import KVCacheManager, PrefixCacheStats
from engine.request import Request
from engine.scheduler.decode_rows import DecodeRows, may_use_rows
from engine.scheduler.integrity import IntegrityReport, examine
from engine.scheduler.journal import StepJournal
from engine.scheduler.queues import RequestQueue, make_queue
from engine.scheduler.skipped import SkippedRequests
from engine.scheduler.speculation import SpeculationStats
from engine.scheduler.transfers import Transfers
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock
from telemetry.vocabulary import SkipReason


class PauseState(Enum):
    """How far an operator has stopped the engine.

    PAUSED_NEW: who runs goes on, nobody is admitted but those that hold blocks already.
    PAUSED_ALL: steps schedule nothing.
    """

    UNPAUSED = auto()
    PAUSED_NEW = auto()
    PAUSED_ALL = auto()


class SchedulerState:
    """Queues, blocks and counters; the scans read and change them.

    Invariants:
        A request is in exactly one of `running`, `waiting`, `kv_holding_waiting`.
        `num_preemptions` counts every loss of blocks, whether or not it could be recorded.
        The first of `running` are the rows of `decodes`, in the same order.

    Args:
        array_path: whether requests that just decode are kept as columns. Decisions are the same.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        recorder: Recorder | None = None,
        clock: Callable[[], int] | None = None,
        connector: KVConnector | None = None,
        ec_connector: ECConnector | None = None,
        array_path: bool = True,
    ) -> None:
        self.connector = connector
        self.ec_connector = ec_connector
        self.transfers = Transfers()
        self.encoder_loads: dict[str, tuple[Request, EncoderItem]] = {}
        """Encoder outputs on their way from elsewhere, by key: who asked first, and for what."""
        self.encoder_loads_started: list[EncoderItem] = []
        """Those of them that the workers have not been told of."""
        self.reserving: set[Request] = set()
        """Prefills and loads under way: other loads leave them the blocks they still need."""
        self.kept: dict[str, Request] = {}
        """Requests that have ended and whose blocks a transfer still needs."""
        self.config = config
        self.limits = config.scheduler
        self.clock = clock if clock is not None else RunClock.start().now
        self.kv = KVCacheManager(config)
        self.encoder_cache = (
            None if config.encoder is None else EncoderCache(config.encoder.cache_size)
        )
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.decodes = DecodeRows(
            is_off=not (array_path and may_use_rows(config)),
            is_async=config.scheduler.async_scheduling,
            block_size=config.cache.block_size,
            max_num_seqs=config.scheduler.max_num_seqs,
            max_model_len=config.scheduler.max_model_len,
        )
        self.waiting: RequestQueue = make_queue(config.scheduler.policy)
        self.kv_holding_waiting: RequestQueue = make_queue(config.scheduler.policy)
        self.skipped = SkippedRequests()
        self.failed: dict[Request, str] = {}
        """Requests that were found to have failed, and why; the next update ends them."""
        self.deferred_frees: list[tuple[int, int]] = []
        """Requests that ended in a step in flight, and the step whose update frees their blocks."""
        self.executing: Mapping[str, int] = {}
        """Tokens by request of the step that executes; with steps in flight, requests know them."""
        self.last_busy_step = -1
        self.finished_ids: set[str] = set()
        self.preempted_ids: set[str] = set()
        self.num_steps = 0
        self.num_preemptions = 0
        self.pause = PauseState.UNPAUSED
        self.left_ready_waiting = False
        """Whether the last admission scan that was not throttled left ready requests behind."""
        self.prefix_cache_stats = PrefixCacheStats()
        self.speculation_stats = SpeculationStats()
        self.journal = StepJournal(recorder or NullRecorder(), self.clock, self)

    @property
    def defers_frees(self) -> bool:
        """Whether blocks of a step in flight may not be given away before it is taken in."""
        connector = self.config.kv_connector
        receives = connector is not None and connector.role != "kv_producer"
        return receives and self.limits.max_concurrent_batches > 1

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait, for whatever reason."""
        return len(self.waiting) + len(self.kv_holding_waiting)

    @property
    def num_waiting_sessions(self) -> int:
        """Sessions between two turns; each keeps its slot."""
        return self.skipped.num_idle_sessions

    def has_requests(self) -> bool:
        """Whether a step has anything to do, be it to tell the runner who has ended."""
        ended = bool(self.finished_ids) or bool(self.kept) or bool(self.transfers.given_up)
        return bool(self.requests) or ended

    @property
    def waits_for_transfers(self) -> bool:
        """Whether somebody waits for KV that is on its way, or to hear whether there is any."""
        transfers = self.transfers
        if transfers.loads_since or transfers.given_up or self.kept:
            return True
        pending = SkipReason.remote_kv_lookup_pending
        return any(request.skipped_for is pending for request in self.waiting)

    @property
    def has_received_kv(self) -> bool:
        """Whether a load has ended whose request has not been looked at since."""
        return any(request.has_loaded for request in self.kv_holding_waiting)

    def head_queue(self) -> RequestQueue:
        """Returns the queue whose head is next: who holds blocks already goes first."""
        return self.kv_holding_waiting if len(self.kv_holding_waiting) else self.waiting

    def queue_of(self, request: Request) -> RequestQueue:
        """Returns the queue of a waiting request, by whether it holds blocks at this moment."""
        return self.kv_holding_waiting if self.kv.holds(request) else self.waiting

    def set_aside(self, request: Request, reason: SkipReason) -> None:
        """Notes why a waiting request is passed over; it counts as skipped until it is admitted."""
        if request.skipped_for is not reason:
            request.skipped_for = reason
            self.skipped.add(request)
            self.journal.skipped(request, reason)

    def take_prefix_cache_stats(self) -> tuple[int, ...]:
        """Returns the look-ups since the last call, as `PrefixCacheStats` lists them."""
        stats, self.prefix_cache_stats = self.prefix_cache_stats, PrefixCacheStats()
        return astuple(stats)

    def take_speculation_stats(self) -> tuple[int, ...]:
        """Returns the verified drafts since the last call, as `SpeculationStats` lists them."""
        stats, self.speculation_stats = self.speculation_stats, SpeculationStats()
        return astuple(stats)

    def settle(self) -> None:
        """Brings all requests up to date, for somebody who looks at them between two calls."""
        self.decodes.settle()

    def examine(self, *, deep: bool = False) -> IntegrityReport:
        """Returns what queues, requests, blocks and cache say of themselves; see `integrity`."""
        self.settle()
        return examine(self, deep=deep)

    def check_integrity(self) -> None:
        """Raises AssertionError unless queues, requests, blocks and cache agree."""
        self.examine().raise_if_broken()
