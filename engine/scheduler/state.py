"""What the scheduler knows between two decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from enum import Enum, auto

from engine.config import EngineConfig
from engine.connectors import KVConnector
from engine.encoder_cache import EncoderCache
from engine.kv_cache import KVCacheManager, PrefixCacheStats
from engine.request import Request
from engine.scheduler.journal import StepJournal
from engine.scheduler.queues import RequestQueue, make_queue
from engine.scheduler.speculation import SpeculationStats
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
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        recorder: Recorder | None = None,
        clock: Callable[[], int] | None = None,
        connector: KVConnector | None = None,
    ) -> None:
        self.connector = connector
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
        self.waiting: RequestQueue = make_queue(config.scheduler.policy)
        self.kv_holding_waiting: RequestQueue = make_queue(config.scheduler.policy)
        self.skipped: set[Request] = set()
        self.failed: dict[Request, str] = {}
        """Requests that were found to have failed, and why; the next update ends them."""
        self.deferred_frees: list[tuple[int, Request]] = []
        """Requests that ended in a step in flight, and the step whose update frees their blocks."""
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
        return receives and self.limits.async_scheduling

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
        return sum(
            request.session is not None and request.blocked_by is not None
            for request in self.skipped
        )

    def has_requests(self) -> bool:
        """Whether a step has anything to do, be it to tell the runner who has ended."""
        return bool(self.requests) or bool(self.finished_ids) or bool(self.kept)

    def head_queue(self) -> RequestQueue:
        """Returns the queue whose head is next: who holds blocks already goes first."""
        return self.kv_holding_waiting if len(self.kv_holding_waiting) else self.waiting

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

    def check_integrity(self) -> None:
        """Raises AssertionError unless queues, requests, blocks and cache agree."""
        self.kv.check_integrity(self.requests.values())
        places = [*self.running, *self.waiting, *self.kv_holding_waiting]
        assert len(places) == len(set(places)) == len(self.requests), "a request is lost or twice"
        if self.encoder_cache is not None:
            self.encoder_cache.check_integrity()
        for request in self.requests.values():
            between_turns = request.session is not None and request.blocked_by is not None
            # A turn that was cut inside its drafts keeps their count, as the original does.
            known = request.num_tokens + request.num_output_placeholders
            known = request.num_computed_tokens if between_turns else known
            assert 0 <= request.num_computed_tokens <= known, "computed beyond known"
