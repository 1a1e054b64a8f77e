"""Too little KV: five changes that make it so, evictions without progress, and by priority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.provoking.connector import SimulatedConnector
from benchmarks.provoking.recording import RecordedLog, Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst, poisson
from engine.config import KVConnectorConfig
from engine.kv_cache import BlockIds
from engine.request import Request
from engine.scheduler import running_scan
from engine.scheduler.plan import StepPlan
from engine.scheduler.preemption import preempt
from engine.scheduler.queues import choose_victim
from engine.scheduler.state import SchedulerState

PRESSURE = "kv-preemption-pressure"
OTHER_PREEMPTIONS = (
    "kv-preemption-thrash",
    "preempt-zero-reclaim-cascade",
    "priority-recompute-churn",
    "request-exceeds-kv-capacity",
    "kv-block-leak",
)


def burst_of_requests(attempt: Attempt) -> RecordedLog:
    """Light traffic, and then some forty requests at once."""
    random = attempt.random
    engine = Recording(settings(num_blocks=random.randint(300, 420)), random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 120), max_tokens=about(random, 160, 0.3))

    engine.send(poisson(random, call, rate=1.2, start=0, end=60))
    size = round(45 * attempt.load)
    engine.send(burst(random, call, count=size, at=random.uniform(22, 28), within=2))
    engine.run()
    return log_of(engine)


def longer_prompts(attempt: Attempt) -> RecordedLog:
    """Prompts become several times as long; nothing else changes.

    So long that those who are there at a time, each for some 5.5 s, need half as much again as
    there is.
    """
    random = attempt.random
    num_blocks, rate = random.randint(420, 500), 2.2 * attempt.load
    engine = Recording(settings(num_blocks=num_blocks), random)
    changes = random.uniform(22, 28)
    longer = 1.5 * 16 * num_blocks / (rate * 5.5) - 200

    def call(at: float) -> Call:
        middle = 96 if at < changes else longer
        return Call(
            at=at, num_prompt_tokens=about(random, middle), max_tokens=about(random, 200, 0.3)
        )

    engine.send(poisson(random, call, rate=rate, start=0, end=60))
    engine.run()
    return log_of(engine)


def longer_outputs(attempt: Attempt) -> RecordedLog:
    """Answers become several times as long; nothing else changes."""
    random = attempt.random
    engine = Recording(settings(num_blocks=random.randint(300, 380)), random)
    changes, longer = random.uniform(18, 24), random.uniform(380, 520)

    def call(at: float) -> Call:
        middle = 90 if at < changes else longer
        return Call(
            at=at, num_prompt_tokens=about(random, 128), max_tokens=about(random, middle, 0.4)
        )

    engine.send(poisson(random, call, rate=1.8 * attempt.load, start=0, end=55))
    engine.run()
    return log_of(engine)


def smaller_pool(attempt: Attempt) -> RecordedLog:
    """The same traffic before and after a restart that leaves a quarter of the blocks."""
    random = attempt.random
    before = round(900 * attempt.load)
    sizes = (before, round(before * random.uniform(0.22, 0.28)))
    return _restarted(attempt, [{"num_blocks": size} for size in sizes], rate=2.2 * attempt.load)


def more_slots(attempt: Attempt) -> RecordedLog:
    """The same traffic before and after a restart with several times the slots."""
    slots = attempt.random.randint(9, 11)
    starts = [{"num_blocks": 280, "max_num_seqs": number} for number in (slots, 128)]
    return _restarted(attempt, starts, rate=3.4 * attempt.load)


def _restarted(attempt: Attempt, starts: list[dict[str, int]], *, rate: float) -> RecordedLog:
    """Two starts one after the other, under the same traffic."""
    random = attempt.random

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 128), max_tokens=about(random, 220, 0.3))

    engines = []
    for number, named in enumerate(starts):
        engine = Recording(settings(**named), random, engine=number + 1, started=number * 60.0)
        engine.send(poisson(random, call, rate=rate, start=0, end=45))
        engine.run(until=50)
        if number == 0:
            engine.stop()
        engines.append(engine)
    return log_of(*engines)


def readmitted_on_a_chunk(attempt: Attempt) -> RecordedLog:
    """Long prompts are let in when a chunk of them fits: they evict each other in mid-prefill.

    `scheduler_reserve_full_isl` is off, as in several public recipes, and the prefix cache too.
    """
    random = attempt.random
    config = settings(
        num_blocks=random.randint(260, 320),
        scheduler_reserve_full_isl=False,
        enable_prefix_caching=False,
        max_num_batched_tokens=random.choice((256, 384)),
        max_model_len=8192,
    )
    engine = Recording(config, random)

    def long(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 2600, 0.15), max_tokens=about(random, 500)
        )

    engine.send(poisson(random, long, rate=0.5 * attempt.load, start=0, end=20))
    engine.send(burst(random, long, count=round(10 * attempt.load), at=5, within=1))
    engine.run(until=60)
    return log_of(engine)


def frees_that_wait(attempt: Attempt) -> RecordedLog:
    """Evictions go on although the blocks of each come a step later.

    A fault of the scheduler itself, put back for the run: today's waits where a victim's blocks
    cannot be released yet (`victim_not_releasable`), this one evicts the next. It takes
    asynchronous scheduling and a connector that receives KV.
    """
    random = attempt.random
    config = settings(
        num_blocks=random.randint(240, 300),
        async_scheduling=True,
        kv_connector=KVConnectorConfig(connector="HostMemoryConnector", role="kv_consumer"),
    )
    engine = Recording(config, random, connector=SimulatedConnector(), array_path=False)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 120), max_tokens=about(random, 260, 0.3))

    engine.send(poisson(random, call, rate=1.6 * attempt.load, start=0, end=30))
    engine.send(burst(random, call, count=round(25 * attempt.load), at=8, within=1))
    with _evicting_without_waiting():
        engine.run(until=50)
    return log_of(engine)


@contextmanager
def _evicting_without_waiting() -> Iterator[None]:
    """Puts the older loop of evictions in place."""

    def extend_or_preempt(
        state: SchedulerState, request: Request, num_tokens: int, plan: StepPlan
    ) -> BlockIds | None:
        while (new_blocks := state.kv.extend(request, num_tokens)) is None:
            victim = choose_victim(state.limits.policy, state.running)
            needed = state.kv.num_blocks_missing(request, num_tokens)
            preempt(state, victim, beneficiary=request, plan=plan, num_blocks_needed=needed)
            if victim is request:
                return None
        state.journal.beneficiary_allocated(request)
        return new_blocks

    todays = running_scan._extend_or_preempt
    running_scan._extend_or_preempt = extend_or_preempt
    try:
        yield
    finally:
        running_scan._extend_or_preempt = todays


def urgent_against_background(attempt: Attempt) -> RecordedLog:
    """Long background requests are evicted by each wave of urgent ones, and start over."""
    random = attempt.random
    config = settings(num_blocks=random.randint(340, 380), policy="priority")
    engine = Recording(config, random)

    def background(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 500, 0.1), max_tokens=1500, priority=9)

    def urgent(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 48, 0.1), max_tokens=about(random, 160))

    engine.send(burst(random, background, count=5, at=0.5))
    for start in range(4, 70, 6):
        size = round(15 * attempt.load)
        engine.send(burst(random, urgent, count=size, at=start, within=1))
    engine.run(until=75)
    return log_of(engine)


SCENARIOS = (
    *(
        Scenario(
            name=f"preemption-by-{run.__name__.replace('_', '-')}",
            source="scripted",
            expected=PRESSURE,
            provoke=run,
            silent=OTHER_PREEMPTIONS,
        )
        for run in (burst_of_requests, longer_prompts, longer_outputs, smaller_pool, more_slots)
    ),
    Scenario(
        name="thrash-by-readmission-on-a-chunk",
        source="scripted",
        expected="kv-preemption-thrash",
        provoke=readmitted_on_a_chunk,
        silent=(PRESSURE, "preempt-zero-reclaim-cascade", "kv-block-leak"),
    ),
    Scenario(
        name="evictions-that-free-nothing",
        source="scripted",
        expected="preempt-zero-reclaim-cascade",
        provoke=frees_that_wait,
        silent=(PRESSURE, "kv-preemption-thrash"),
    ),
    Scenario(
        name="urgent-waves-evict-background",
        source="scripted",
        expected="priority-recompute-churn",
        provoke=urgent_against_background,
        silent=("priority-inversion", "kv-block-leak"),
    ),
)
