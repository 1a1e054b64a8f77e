"""Engines that do their work, at rest and under load: nothing above info may be found."""

from __future__ import annotations

from benchmarks.provoking.pace import Pace
from benchmarks.provoking.recording import RecordedLog, Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst, poisson


def light_traffic(attempt: Attempt) -> RecordedLog:
    """A request every second or two."""
    random = attempt.random
    engine = Recording(settings(num_blocks=random.randint(500, 2000)), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 200, 0.7), max_tokens=about(random, 100, 0.6)
        )

    engine.send(poisson(random, call, rate=0.6 * attempt.load, start=0, end=60))
    engine.run()
    return log_of(engine)


def busy(attempt: Attempt) -> RecordedLog:
    """Twenty requests at once, all day long; the limits have room for them."""
    random = attempt.random
    engine = Recording(settings(num_blocks=random.randint(900, 1400)), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 220, 0.6), max_tokens=about(random, 140, 0.5)
        )

    engine.send(poisson(random, call, rate=4.0 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


def bursts_that_fit(attempt: Attempt) -> RecordedLog:
    """Bursts of thirty, for which pool and slots have room."""
    random = attempt.random
    engine = Recording(settings(num_blocks=1300), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 150, 0.5), max_tokens=about(random, 90, 0.5)
        )

    engine.send(poisson(random, call, rate=0.8 * attempt.load, start=0, end=60))
    for at in range(8, 60, 12):
        engine.send(burst(random, call, count=round(28 * attempt.load), at=at, within=2))
    engine.run()
    return log_of(engine)


def long_prompts_that_fit(attempt: Attempt) -> RecordedLog:
    """A long prompt now and then, computed in a few steps, in a pool that has room for it."""
    random = attempt.random
    config = settings(num_blocks=4000, max_num_batched_tokens=4096, max_model_len=16384)
    engine = Recording(config, random, pace=Pace(prefill_us=20))

    def call(at: float) -> Call:
        middle = 5000 if random.random() < 0.15 else 300
        return Call(
            at=at, num_prompt_tokens=about(random, middle, 0.4), max_tokens=about(random, 120, 0.5)
        )

    engine.send(poisson(random, call, rate=1.0 * attempt.load, start=0, end=60))
    engine.run()
    return log_of(engine)


def full_pool_without_a_queue(attempt: Attempt) -> RecordedLog:
    """Long answers fill the pool to its last tenth, and all of them fit to their ends."""
    random = attempt.random
    count = random.randint(8, 12)
    needed = count * -(-(300 + 900) // 16)
    pool = round(needed / random.uniform(0.93, 0.97))
    engine = Recording(settings(num_blocks=pool), random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=300, max_tokens=900)

    engine.send(burst(random, call, count=count, at=0.5, within=2 / attempt.load))
    engine.run()
    return log_of(engine)


def offline_backlog(attempt: Attempt) -> RecordedLog:
    """A batch job hands in all its requests at once: they are meant to queue."""
    random = attempt.random
    slots = random.randint(16, 32)
    engine = Recording(settings(num_blocks=slots * 40, max_num_seqs=slots), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 200, 0.5), max_tokens=about(random, 100, 0.5)
        )

    engine.send(burst(random, call, count=round(slots * 8 * attempt.load), at=0.5, within=1))
    engine.run()
    return log_of(engine)


def equal_priorities(attempt: Attempt) -> RecordedLog:
    """The policy is `priority`, and everybody has the same."""
    random = attempt.random
    engine = Recording(settings(num_blocks=900, policy="priority"), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 220, 0.5), max_tokens=about(random, 120, 0.5)
        )

    engine.send(poisson(random, call, rate=2.5 * attempt.load, start=0, end=50))
    engine.run()
    return log_of(engine)


def asynchronous(attempt: Attempt) -> RecordedLog:
    """Steps are decided while the one before still runs."""
    random = attempt.random
    engine = Recording(settings(num_blocks=900, async_scheduling=True), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 200, 0.5), max_tokens=about(random, 120, 0.5)
        )

    engine.send(poisson(random, call, rate=2.5 * attempt.load, start=0, end=50))
    engine.run()
    return log_of(engine)


def one_request_at_a_time(attempt: Attempt) -> RecordedLog:
    """A single client who waits for each answer, and thinks."""
    random = attempt.random

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 800, 0.8), max_tokens=about(random, 80, 0.5)
        )

    engine = Recording(
        settings(num_blocks=600),
        random,
        on_end=lambda run, number: call(random.uniform(0.2, 3)) if run.seconds < 60 else None,
    )
    engine.send([call(0.5)])
    engine.run()
    return log_of(engine)


def closed_loop(attempt: Attempt) -> RecordedLog:
    """A dozen clients, each of whom sends the next request when an answer has ended."""
    random = attempt.random

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 200, 0.4), max_tokens=about(random, 120, 0.4)
        )

    engine = Recording(
        settings(num_blocks=800),
        random,
        on_end=lambda run, number: call(random.uniform(0, 1)) if run.seconds < 45 else None,
    )
    engine.send(burst(random, call, count=round(14 * attempt.load), at=0.2, within=3))
    engine.run()
    return log_of(engine)


def a_moment_at_the_slots(attempt: Attempt) -> RecordedLog:
    """One small burst fills all slots for a second or two."""
    random = attempt.random
    slots = 16
    engine = Recording(settings(num_blocks=900, max_num_seqs=slots), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 120, 0.5), max_tokens=about(random, 80, 0.5)
        )

    engine.send(poisson(random, call, rate=1.5 * attempt.load, start=0, end=60))
    size = slots + round(3 * attempt.load)
    engine.send(burst(random, call, count=size, at=random.uniform(20, 40)))
    engine.run()
    return log_of(engine)


RUNS = (
    light_traffic,
    busy,
    bursts_that_fit,
    long_prompts_that_fit,
    offline_backlog,
    equal_priorities,
    asynchronous,
    one_request_at_a_time,
    closed_loop,
    a_moment_at_the_slots,
)
SCENARIOS = (
    *(
        Scenario(
            name=f"healthy-{run.__name__.replace('_', '-')}",
            source="scripted",
            expected=None,
            provoke=run,
        )
        for run in RUNS
    ),
    Scenario(
        name="healthy-full-pool-without-a-queue",
        source="scripted",
        expected=None,
        provoke=full_pool_without_a_queue,
        silent=("kv-preemption-pressure", "queueing-with-kv-full", "kv-block-leak"),
        shown=("guard-kv-high-healthy",),
    ),
)
