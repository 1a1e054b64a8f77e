"""The engine's own numbers for a metrics page: counters, gauges, histograms. No exporter in here.

`EngineStats` is kept by the step loop and costs it a few set operations a step, not a loop over
requests: whoever got a token in this step and in the one before waited exactly the time between the
two. `StatsSnapshot` is what leaves the process; whoever renders it decides how it is spelled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.config import EngineConfig
from engine.draft_stats import DraftStats
from engine.request import Request, RequestStatus
from engine.scheduler.output import RequestOutput, SchedulerOutput
from engine.scheduler.scheduler import Scheduler
from telemetry.vocabulary import FinishReason

NS = 1_000_000_000

_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_ITL = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_LENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_STEP_TOKENS = tuple(float(2**n) for n in (0, *range(3, 15)))
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

HISTOGRAM_BOUNDS: Mapping[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": _TTFT,
    "inter_token_latency_seconds": _ITL,
    "request_time_per_output_token_seconds": _ITL,
    "e2e_request_latency_seconds": _LATENCY,
    "request_queue_time_seconds": _LATENCY,
    "request_inference_time_seconds": _LATENCY,
    "request_prefill_time_seconds": _LATENCY,
    "request_decode_time_seconds": _LATENCY,
    "request_prompt_tokens": _LENGTHS,
    "request_generation_tokens": _LENGTHS,
    "request_params_max_tokens": _LENGTHS,
    "iteration_tokens_total": _STEP_TOKENS,
    "request_num_preemptions": _PREEMPTIONS,
}
"""Upper bounds of each histogram's buckets, as vLLM has them; infinity is implied."""


@dataclass(slots=True)
class Histogram:
    """Counts by bucket: `counts[i]` are values up to `bounds[i]`, the last those above all."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        """Returns a histogram that later observations leave alone."""
        return Histogram(self.bounds, list(self.counts), self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStats:
    """How many a step may have, and those that requests run or wait with at a moment."""

    seconds: float
    max_loras: int
    running: Sequence[str]
    waiting: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSnapshot:
    """The engine's numbers at one moment. Ratios are 0 to 1; counters count since the start.

    `num_waiting_deferred` wait for something of their own, `num_waiting_capacity` for room.
    `num_finished` counts ends by FinishReason name, `num_admission_rejections` those refused for
    want of room in the queue. Prefix cache numbers are tokens.
    """

    engine: str
    model_name: str
    started_seconds: float
    num_running: int
    num_waiting_capacity: int
    num_waiting_deferred: int
    kv_cache_usage_ratio: float
    num_steps: int
    num_preemptions: int
    num_prompt_tokens: int
    num_prompt_tokens_cached: int
    num_generation_tokens: int
    num_prefix_cache_queries: int
    num_prefix_cache_hits: int
    num_finished: Mapping[str, int]
    num_admission_rejections: int
    histograms: Mapping[str, Histogram]
    cache_config: Mapping[str, str]
    adapters: AdapterStats | None = None
    """None without adapters."""
    drafts: DraftStats | None = None
    """None without speculative decoding."""


class EngineStats:
    """What the step loop counts as it goes."""

    def __init__(self, config: EngineConfig, started_ts: int) -> None:
        self.num_admission_rejections = 0
        num_drafts = config.speculation.num_speculative_tokens
        self.drafts = DraftStats.of(num_drafts) if num_drafts else None
        self._config = config
        self._started_ts = started_ts
        self._histograms = {name: Histogram(b) for name, b in HISTOGRAM_BOUNDS.items()}
        self._num_finished = {reason.name: 0 for reason in FinishReason}
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_prompt_tokens_cached = 0
        self._num_generation_tokens = 0
        self._served: set[str] = set()
        self._served_ts = 0
        self._paused_since: dict[str, int] = {}

    def step_done(
        self,
        output: SchedulerOutput,
        results: Sequence[RequestOutput],
        requests: Mapping[str, Request],
        now: int,
    ) -> None:
        """Takes in a finished step. `requests` still holds those that ended in it."""
        self._num_steps += 1
        if output.total_num_scheduled_tokens:
            self._observe("iteration_tokens_total", output.total_num_scheduled_tokens)
        self._count_hits(output, requests)
        self._num_generation_tokens += sum(len(result.new_token_ids) for result in results)
        served = {result.request_id for result in results if result.new_token_ids}
        self._observe_gaps(served, requests, now)
        self._served, self._served_ts = served, now

    def finished(self, request: Request, reason: FinishReason, now: int) -> None:
        """Takes in a request's end. Latencies are of requests that were answered."""
        self._num_finished[reason.name] += 1
        self._paused_since.pop(request.request_id, None)
        self._served.discard(request.request_id)
        if reason not in (FinishReason.stop, FinishReason.length):
            return
        times = request.times
        self._observe("request_prompt_tokens", request.num_prompt_tokens)
        self._observe("request_generation_tokens", request.num_output_tokens)
        self._observe("request_params_max_tokens", request.sampling.max_tokens)
        self._observe("request_num_preemptions", request.num_preemptions)
        self._observe_between("e2e_request_latency_seconds", _received(request), now)
        self._observe_between("request_queue_time_seconds", times.arrived, times.admitted)
        self._observe_between("request_inference_time_seconds", times.admitted, times.last_token)
        self._observe_between("request_prefill_time_seconds", times.admitted, times.first_token)
        self._observe_between("request_decode_time_seconds", times.first_token, times.last_token)
        if request.num_output_tokens > 1 and times.first_token and times.last_token:
            gaps = request.num_output_tokens - 1
            decode_seconds = (times.last_token - times.first_token) / NS
            self._observe("request_time_per_output_token_seconds", decode_seconds / gaps)

    def snapshot(self, scheduler: Scheduler, *, model_name: str, now: int) -> StatsSnapshot:
        """Returns all numbers as they are now."""
        usable = self._config.cache.num_usable_blocks
        num_deferred = len(scheduler.skipped)
        prefix = scheduler.prefix_cache_stats
        return StatsSnapshot(
            engine="0",
            model_name=model_name,
            started_seconds=self._started_ts / NS,
            num_running=scheduler.num_running,
            num_waiting_capacity=scheduler.num_waiting - num_deferred,
            num_waiting_deferred=num_deferred,
            kv_cache_usage_ratio=1 - scheduler.kv.pool.num_free / usable,
            num_steps=self._num_steps,
            num_preemptions=scheduler.num_preemptions,
            num_prompt_tokens=self._num_prompt_tokens,
            num_prompt_tokens_cached=self._num_prompt_tokens_cached,
            num_generation_tokens=self._num_generation_tokens,
            num_prefix_cache_queries=prefix.num_queried_tokens,
            num_prefix_cache_hits=prefix.num_hit_tokens,
            num_finished=dict(self._num_finished),
            num_admission_rejections=self.num_admission_rejections,
            histograms={name: each.copy() for name, each in self._histograms.items()},
            cache_config=_cache_config(self._config),
            adapters=self._adapters(scheduler, now),
            drafts=None if self.drafts is None else self.drafts.copy(),
        )

    def _adapters(self, scheduler: Scheduler, now: int) -> AdapterStats | None:
        max_loras = self._config.scheduler.max_loras
        if max_loras is None:
            return None
        named: dict[bool, dict[str, None]] = {True: {}, False: {}}
        for request in scheduler.requests.values():
            if request.adapter is not None:
                named[request.status is RequestStatus.RUNNING][request.adapter] = None
        return AdapterStats(
            seconds=now / NS,
            max_loras=max_loras,
            running=tuple(named[True]),
            waiting=tuple(named[False]),
        )

    def _count_hits(self, output: SchedulerOutput, requests: Mapping[str, Request]) -> None:
        for request_id, num_hit in output.num_prefix_hit_tokens.items():
            request = requests.get(request_id)
            if num_hit and request is not None and not request.num_preemptions:
                self._num_prompt_tokens_cached += num_hit

    def _observe_gaps(self, served: set[str], requests: Mapping[str, Request], now: int) -> None:
        """Observes how long each served request had waited for this token."""
        num_steady = len(served & self._served)
        if num_steady:
            gap_seconds = (now - self._served_ts) / NS
            self._histograms["inter_token_latency_seconds"].observe(gap_seconds, num_steady)
        for request_id in self._served - served:
            self._paused_since[request_id] = self._served_ts
        for request_id in served - self._served:
            since = self._paused_since.pop(request_id, None)
            if since is not None:
                self._observe("inter_token_latency_seconds", (now - since) / NS)
            else:
                self._first_token(requests[request_id], now)

    def _first_token(self, request: Request, now: int) -> None:
        self._num_prompt_tokens += request.num_prompt_tokens
        self._observe("time_to_first_token_seconds", (now - _received(request)) / NS)

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def _observe_between(self, name: str, start: int | None, end: int | None) -> None:
        if start is not None and end is not None:
            self._observe(name, (end - start) / NS)


def _received(request: Request) -> int:
    """Returns when the request reached the server, or the engine where no server is before it."""
    times = request.times
    return times.arrived if times.received is None else times.received


def _cache_config(config: EngineConfig) -> dict[str, str]:
    """Returns the cache's settings as vLLM's info metric spells those that we have."""
    cache = config.cache
    pairs: Iterable[tuple[str, object]] = (
        ("block_size", cache.block_size),
        ("enable_prefix_caching", cache.enable_prefix_caching),
        ("gpu_memory_utilization", cache.gpu_memory_utilization),
        ("kv_cache_size_tokens", cache.num_gpu_blocks * cache.block_size),
        ("num_gpu_blocks", cache.num_gpu_blocks),
    )
    return {name: str(value) for name, value in pairs}
