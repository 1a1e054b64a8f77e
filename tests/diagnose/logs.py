"""Logs to diagnose: built by hand, or recorded from the real scheduler with scripted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from diagnose.diagnosis import evaluate, read_context
from diagnose.finding import Finding, RuleVerdict
from diagnose.rules import RULES
from diagnose.window import choose_window, engines_in
from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from engine.request import Request
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from telemetry.recorder import ListRecorder
from telemetry.records import Event, StepRow
from telemetry.sql.schema import BASE_TABLES
from telemetry.vocabulary import EventKind, StopReason
from tests.telemetry.log_builder import MS, START, LogBuilder, connect, insert


class MemoryLog:
    """A step log in memory that answers as `telemetry.store.Log` does.

    All of them share one connection, for creating tables and views takes longer than a test: who is
    asked puts its rows in first, unless they are there.
    """

    _shared: ClassVar[duckdb.DuckDBPyConnection | None] = None
    _owner: ClassVar[MemoryLog | None] = None

    def __init__(self, builders: Sequence[LogBuilder]) -> None:
        self.builders = builders

    def query(self, sql: str, params: Any = None) -> pa.Table:
        return self._connection().execute(sql, params or []).to_arrow_table()

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if MemoryLog._shared is None:
            MemoryLog._shared = connect()
        shared = MemoryLog._shared
        if MemoryLog._owner is not self:
            for table in BASE_TABLES:
                shared.execute(f"DELETE FROM {table}")
            insert(shared, *self.builders)
            MemoryLog._owner = self
        return shared


def log_of(*builders: LogBuilder) -> MemoryLog:
    return MemoryLog(builders)


@dataclass(slots=True)
class Clock:
    """A clock that moves only when it is told to."""

    now: int = START

    def __call__(self) -> int:
        return self.now


@dataclass(slots=True)
class Arrival:
    """A request that arrives before the given step."""

    step: int
    num_prompt_tokens: int = 64
    max_tokens: int = 160
    priority: int = 0


@dataclass(slots=True)
class Run:
    """A run of the real scheduler, recorded."""

    config: EngineConfig
    recorder: ListRecorder = field(default_factory=ListRecorder)
    num_preemptions: int = 0
    engine: int = 1

    def builder(self) -> LogBuilder:
        """Its rows, as they would stand in the log."""
        log = LogBuilder(self.engine)
        limits, cache = self.config.scheduler, self.config.cache
        log.described(
            dp_rank=0,
            policy=limits.policy,
            block_size=cache.block_size,
            num_usable_blocks=cache.num_usable_blocks,
            has_null_block=True,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_model_len=limits.max_model_len,
            reserve_full_prompt=limits.scheduler_reserve_full_isl,
            enable_prefix_caching=cache.enable_prefix_caching,
            watermark=limits.watermark,
            device="cpu",
            settings=self.config.to_json(),
        )
        for row in self.recorder.steps:
            log._add("steps", _values(row))
        for seq, event in enumerate(self.recorder.events):
            table = event.TABLE or "request_events"
            known = {column.name for column in BASE_TABLES[table]}
            values = {k: v for k, v in _values(event).items() if k in known}
            log._add(table, values | {"seq": seq})
        return log

    def log(self) -> MemoryLog:
        return log_of(self.builder())


def _values(row: StepRow | Event) -> dict[str, Any]:
    return {f.name: getattr(row, f.name) for f in fields(row)}


def config(
    *,
    num_gpu_blocks: int = 64,
    block_size: int = 32,
    max_num_seqs: int = 32,
    enable_prefix_caching: bool = True,
    **scheduler: Any,
) -> EngineConfig:
    return EngineConfig(
        cache=CacheConfig(
            block_size=block_size,
            num_gpu_blocks=num_gpu_blocks,
            enable_prefix_caching=enable_prefix_caching,
        ),
        scheduler=SchedulerConfig(max_num_seqs=max_num_seqs, **scheduler),
    )


def run(
    settings: EngineConfig,
    arrivals: Sequence[Arrival],
    *,
    step_ns: int = 6 * MS,
    max_steps: int = 20_000,
    tokens: Callable[[str, int], int] = lambda request_id, n: 7,
) -> Run:
    """Runs all arrivals to their end (or `max_steps`) on a clock of its own."""
    recorded = Run(settings)
    clock = Clock()
    scheduler = Scheduler(settings, recorder=recorded.recorder, clock=clock)
    runner = ScriptedRunner(tokens)
    pending = sorted(enumerate(arrivals), key=lambda item: item[1].step)
    for step in range(max_steps):
        while pending and pending[0][1].step <= step:
            number, arrival = pending.pop(0)
            scheduler.add_request(_request(number, arrival))
            clock.now += 100_000
        if not pending and not scheduler.has_requests():
            break
        output = scheduler.schedule()
        clock.now += step_ns
        scheduler.update_from_output(output, runner.execute(output))
        clock.now += 50_000
    recorded.num_preemptions = scheduler.num_preemptions
    return recorded


def _request(number: int, arrival: Arrival) -> Request:
    prompt = [1000 + number * 7919 % 5000 + i for i in range(arrival.num_prompt_tokens)]
    sampling = SamplingParams(max_tokens=arrival.max_tokens, ignore_eos=True)
    return Request(
        request_id=f"req-{number}",
        number=number,
        prompt_token_ids=prompt,
        sampling=sampling,
        arrival_time=float(number),
        priority=arrival.priority,
    )


def storm_arrivals() -> list[Arrival]:
    """28 requests at once, then one every 8 steps."""
    return [Arrival(1) for _ in range(28)] + [Arrival(40 + 8 * i) for i in range(56)]


def described(engine: int = 1, **columns: Any) -> LogBuilder:
    """An engine with 63 blocks of 16 tokens and 32 slots."""
    own = {"has_null_block": True, "watermark": 0.0, "reserve_full_prompt": True, "dp_rank": 0}
    return LogBuilder(engine).described(**(own | columns))


def steps(
    log: LogBuilder,
    number: int,
    *,
    running: int = 8,
    waiting: int = 0,
    free: int = 20,
    tokens: int = 8,
    stop: StopReason = StopReason.queue_empty,
    **columns: Any,
) -> LogBuilder:
    """Adds equal steps; `num_preemptions_total` stays what it was."""
    own = {
        "num_running": running,
        "num_waiting": waiting,
        "num_scheduled_tokens": tokens,
        "num_prefill_tokens": 0,
        "num_decode_tokens": tokens,
        "num_recomputed_tokens": 0,
        "num_blocks_free_unhashed": free,
        "num_blocks_free_cached": 0,
        "num_blocks_running": 63 - free,
        "num_blocks_waiting": 0,
        "stop_reason": stop,
        "token_budget": 2048,
        "num_preempted": 0,
        "num_preemptions_total": preemptions_of(log),
    }
    for _ in range(number):
        log.step(**(own | columns))
    return log


def preemptions_of(log: LogBuilder) -> int:
    """Preempted events so far."""
    kind = EventKind.preempted
    return sum(row["kind"] == kind for row in log.rows["request_events"])


def preempting_step(log: LogBuilder, victims: Sequence[int], **event: Any) -> LogBuilder:
    """Adds a step that evicts `victims`, each for the request before it."""
    total = preemptions_of(log) + len(victims)
    own = {"num_preempted": len(victims), "num_preemptions_total": total}
    steps(log, 1, free=0, waiting=len(victims), stop=StopReason.preempted_this_step, **own)
    for victim in victims:
        values = {"lost": 40, "beneficiary": max(victim - 1, 0), "num_output_tokens_kept": 1}
        log.preempted(victim, **(values | event))
    return log


def pressed(
    *,
    num_requests: int = 100,
    num_evicted: int = 20,
    times: int = 1,
    num_steps: int = 200,
    pause_ns: int = 400 * MS,
    calm_pause_ns: int = 20 * MS,
    **event: Any,
) -> LogBuilder:
    """Requests that all end, of which some are evicted `times` times each, then resume."""
    log = described()
    for request in range(num_requests):
        log.arrived(request, num_prompt_tokens=64, max_tokens=64)
    steps(log, num_steps)
    for nth in range(times):
        for victim in range(num_requests - num_evicted, num_requests):
            own = {"lost": 40 + 10 * nth, "num_output_tokens_kept": 5 + nth}
            preempting_step(log, [victim], **(own | event))
            steps(log, 1, waiting=1)
            log.resumed(victim, hit=0, num_scheduled_tokens=45 + 10 * nth).caught_up(victim)
    steps(log, 50)
    for request in range(num_requests):
        evicted = request >= num_requests - num_evicted
        pause = pause_ns if evicted else calm_pause_ns
        log.finished(request, num_output_tokens=64, max_itl_ns=pause)
    return log


def verdict_of(log: MemoryLog, rule: str) -> RuleVerdict:
    """What one rule says of the log's one engine."""
    window = choose_window(log)
    context = read_context(log, window, engines_in(log, window)[0])
    return evaluate(context, tuple(RULES.values()))[rule]


def finding_of(log: MemoryLog, rule: str) -> Finding:
    """The finding of one rule; fails where it says something else."""
    verdict = verdict_of(log, rule)
    assert isinstance(verdict, Finding), verdict
    return verdict
