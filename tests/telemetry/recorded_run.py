"""An incident, recorded as a real engine is: scheduler, ring, collector, step log.

`python -m tests.telemetry.recorded_run DIR` leaves a step log in DIR. Only the model is scripted,
and the clock, so that the same log comes out each time but for heartbeats and read positions.

    engine a1   32 requests for a pool of 40 blocks, two adapters too many, two priorities, KV loads
                from host and disk, an operator's pause, a client that leaves; then it dies.
    engine a2   the same model with twice the blocks and half the slots; everything ends well.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.config import CacheConfig, EngineConfig, KVConnectorConfig, SchedulerConfig
from engine.identity import DeviceMemory, LifeEvents, describe, introduce
from engine.request import Request
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from engine.scheduler import ModelRunnerOutput, Scheduler, SchedulerOutput
from engine.scheduler.state import PauseState
from telemetry.collector import Collector
from telemetry.records import ConnectorEvent, RunClock
from telemetry.ring import RingRecorder
from telemetry.ring.place import ring_name
from telemetry.store.files import day_of
from telemetry.vocabulary import FinishReason
from tests.telemetry.recorded_sources import record_sources

START = 1_764_417_720_000_000_000
"""2025-11-29 12:02:00 UTC, in ns since the Unix epoch."""
MS = 1_000_000
FIRST, SECOND = 0xA1, 0xA2
MODEL = "tiny-llama"
ADAPTERS = (None, "sql", "chat", "legal")
PAUSED_STEPS = range(110, 160)
TIERS = {1: "host", 2: "disk"}


@dataclass(slots=True)
class _Clock:
    """Moves when it is told to, and by 1 µs each time it is read: no two moments are equal."""

    now: int

    def __call__(self) -> int:
        self.now += 1_000
        return self.now


class _RunClock(RunClock):
    """The ring's clock is the run's."""

    __slots__ = ("source",)

    def now(self) -> int:
        return self.source.now


@dataclass(slots=True)
class Loader:
    """A KV connector that has the prompts of some requests, in two tiers."""

    due: dict[str, int] = field(default_factory=dict)

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int:
        has_it = request.number % 4 == 3 and request.num_preemptions == 0
        return max(0, request.num_prompt_tokens - num_local_tokens - 16) if has_it else 0

    def loads_async(self, request: Request) -> bool:
        return True

    def delays_free(self, request: Request) -> bool:
        return False

    def finished(self, output: SchedulerOutput) -> frozenset[str]:
        """Returns the loads that a step ends: three steps from the host, twelve from disk."""
        for name in output.kv_loads_started:
            self.due[name] = output.step + (3 if _tier_of(name) == 1 else 12)
        done = frozenset(name for name, step in self.due.items() if step <= output.step)
        for name in done:
            del self.due[name]
        return done


def _tier_of(request_id: str) -> int:
    return 1 if int(request_id.removeprefix("req-")) % 8 == 3 else 2


class _Tiers:
    """A recorder that adds what a scripted connector knows of its loads: where the KV lay."""

    def __init__(self, ring: RingRecorder) -> None:
        self._ring = ring

    def __getattr__(self, name: str) -> object:
        return getattr(self._ring, name)

    def record_step(self, step, events, requests) -> None:  # type: ignore[no-untyped-def]
        self._ring.record_step(step, [self._with_tier(event) for event in events], requests)

    def record_events(self, events) -> None:  # type: ignore[no-untyped-def]
        self._ring.record_events([self._with_tier(event) for event in events])

    @staticmethod
    def _with_tier(event):  # type: ignore[no-untyped-def]
        if not isinstance(event, ConnectorEvent) or event.request is None:
            return event
        return replace(event, connector="scripted", tier=_tier_of(f"req-{event.request}"))


def settings(*, num_gpu_blocks: int, max_num_seqs: int) -> EngineConfig:
    return EngineConfig(
        scheduler=SchedulerConfig(
            policy="priority",
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=256,
            max_model_len=512,
            max_loras=2,
        ),
        cache=CacheConfig(num_gpu_blocks=num_gpu_blocks, block_size=16),
        kv_connector=KVConnectorConfig(),
    )


def requests(number_of: int, seed: int, clock: _Clock) -> Iterator[Request]:
    """Yields requests that share a prefix by adapter, of mixed lengths and priorities."""
    lengths = random.Random(seed)
    for number in range(number_of):
        adapter = ADAPTERS[number % 4]
        shared = [7_000 + 100 * (number % 4) + i for i in range(32)]
        own = [10_000 + 500 * number + i for i in range(lengths.randrange(16, 64))]
        max_tokens = lengths.randrange(40, 104)
        yield Request(
            request_id="req-6<script>" if number == 6 else f"req-{number}",
            number=number,
            prompt_token_ids=shared + own,
            sampling=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            arrival_time=clock.now / 1e9,
            priority=0 if number % 5 == 0 else 1,
            adapter=adapter,
        )


class _Run:
    """One engine start."""

    def __init__(self, rings: Path, engine: int, start: int, config: EngineConfig) -> None:
        self.clock = _Clock(start)
        run_clock = _RunClock(start, 0)
        object.__setattr__(run_clock, "source", self.clock)
        self.ring = RingRecorder(rings, run_clock, engine=engine, ring_bytes=8 << 20)
        row = introduce(started_ts=start, model=MODEL, version="test")
        row = replace(row, host="host-1", pid=1, boot_id="boot", host_cpu_count=2)
        self.ring.describe_engine(describe(row, config, device="cpu", memory=DeviceMemory()))
        self.life = LifeEvents(self.ring, self.clock)
        self.life.started()
        self.loader = Loader()
        self.scheduler = Scheduler(
            config, recorder=_Tiers(self.ring), clock=self.clock, connector=self.loader
        )  # type: ignore[arg-type]
        self.runner = ScriptedRunner(lambda request_id, n: 7)
        self.jitter = random.Random(engine)

    def step(self) -> int:
        """Runs one step; it takes longer the more it computes. Returns its number."""
        output = self.scheduler.schedule()
        result = self.runner.execute(output)
        forward_ns = int((200 + 2 * output.total_num_scheduled_tokens) * MS)
        forward_ns += self.jitter.randrange(20 * MS)
        self.clock.now += forward_ns
        loaded = self.loader.finished(output)
        self.scheduler.update_from_output(output, self._timed(result, forward_ns, loaded))
        self.clock.now += 2 * MS
        return output.step

    @staticmethod
    def _timed(result: ModelRunnerOutput, forward_ns: int, loaded: frozenset[str]):  # type: ignore[no-untyped-def]
        return replace(result, forward_ns=forward_ns, finished_recving=loaded)


def _first(rings: Path) -> _Run:
    """The incident; the engine dies in the middle of its last requests."""
    run = _Run(rings, FIRST, START, settings(num_gpu_blocks=41, max_num_seqs=14))
    pending = list(requests(32, 1, run.clock))
    step = -1
    while run.scheduler.has_requests() or pending:
        while pending and (step >= 2 * pending[0].number - 40):
            run.scheduler.add_request(pending.pop(0))
            run.clock.now += 20 * MS
        if step + 1 == PAUSED_STEPS.start:
            run.scheduler.set_pause(PauseState.PAUSED_NEW)
        if step + 1 == PAUSED_STEPS.stop:
            run.scheduler.set_pause(PauseState.UNPAUSED)
        if step == 60:
            run.scheduler.finish_requests(["req-20"], FinishReason.abort_client)
        step = run.step()
        if not pending and len(run.scheduler.requests) <= 3:
            break
    return run


def _second(rings: Path, start: int) -> _Run:
    """The engine after a restart with other settings."""
    run = _Run(rings, SECOND, start, settings(num_gpu_blocks=96, max_num_seqs=6))
    step = -1
    pending = list(requests(16, 2, run.clock))
    while run.scheduler.has_requests() or pending:
        while pending and step >= 3 * pending[0].number - 20:
            run.scheduler.add_request(pending.pop(0))
            run.clock.now += 20 * MS
        step = run.step()
    run.life.stopped("its requests have ended", step=step + 1)
    return run


def record(directory: Path) -> Path:
    """Records both engines into a step log in `directory`; returns it."""
    rings = directory.with_name(directory.name + ".rings")
    rings.mkdir(parents=True)
    with Collector(directory, directories=[rings], detail="full") as collector:
        collector.open()
        first = _first(rings)
        collector.drain()
        _abandon(first.ring, rings)
        collector.drain()
        second = _second(rings, first.clock.now + 30_000 * MS)
        second.ring.close()
        collector.drain()
    shutil.rmtree(rings)
    record_sources(directory, day_of(START))
    _keep_one_day(directory, day_of(START))
    return directory


def _abandon(ring: RingRecorder, rings: Path) -> None:
    """Lets go of a ring as a process that dies does: the lock is free, nothing says good-bye."""
    ring._stop.set()
    ring._heart.join(timeout=5)
    os.close(ring._file.lock_fd)
    assert (rings / ring_name(ring.engine)).exists()


def _keep_one_day(directory: Path, day: str) -> None:
    for path in directory.iterdir():
        if not path.name.startswith(day):
            path.unlink() if path.is_file() else shutil.rmtree(path)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
