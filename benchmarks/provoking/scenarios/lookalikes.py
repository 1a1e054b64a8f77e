"""What looks like a fault and is none: the confounders that a rule's page names."""

from __future__ import annotations

from benchmarks.provoking.connector import SimulatedConnector
from benchmarks.provoking.pace import Pace
from benchmarks.provoking.recording import RecordedLog, Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst, poisson
from engine.config import EngineConfig, KVConnectorConfig
from engine.scheduler import PauseState


def _served(
    attempt: Attempt,
    config: EngineConfig,
    *,
    rate: float,
    end: float = 50,
    output: int = 110,
    connector: SimulatedConnector | None = None,
    pace: Pace | None = None,
) -> Recording:
    """Returns an engine that ordinary traffic is going to come to."""
    random = attempt.random
    engine = Recording(config, random, connector=connector, pace=pace)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 180, 0.5), max_tokens=about(random, output, 0.4)
        )

    engine.send(poisson(random, call, rate=rate * attempt.load, start=0, end=end))
    return engine


def a_few_evictions(attempt: Attempt) -> RecordedLog:
    """A burst whose prompts fit and whose answers do not: two or three of hundreds are evicted.

    The burst has the pool to itself and grows in step, from 11 blocks each to 13. Each eviction
    leaves 12 and one fewer to grow; what is over at the end is too little to let one in again.
    """
    random = attempt.random
    size, num_evicted = 40, random.randint(2, 3)
    engine = Recording(settings(num_blocks=13 * (size - num_evicted) + 6), random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=100, max_tokens=24)

    def growing(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=16 * 11 - 4, max_tokens=30)

    rate = 18 * attempt.load
    engine.send(poisson(random, call, rate=rate, start=0, end=16))
    engine.send(burst(random, growing, count=size, at=18, within=0.02))
    engine.send(poisson(random, call, rate=rate, start=21, end=36))
    engine.run()
    return log_of(engine)


def cache_resets(attempt: Attempt) -> RecordedLog:
    """An operator empties the prefix cache again and again, and all who run start over."""
    engine = _served(attempt, settings(num_blocks=900), rate=1.8)
    for second in range(10, 50, 10):
        engine.at(second, lambda: engine.scheduler.reset_prefix_cache(reset_running=True) and None)
    engine.run()
    return log_of(engine)


def paused_by_an_operator(attempt: Attempt) -> RecordedLog:
    """An operator pauses admission for over a minute; those who come meanwhile wait."""
    engine = _served(attempt, settings(num_blocks=900), rate=0.5, end=120)
    start = attempt.random.uniform(20, 30)
    engine.at(start, lambda: engine.scheduler.set_pause(PauseState.PAUSED_ALL))
    engine.at(start + 70, lambda: engine.scheduler.set_pause(PauseState.UNPAUSED))
    engine.run()
    return log_of(engine)


def a_cold_start(attempt: Attempt) -> RecordedLog:
    """The first step compiles for some twenty seconds, and requests come meanwhile."""
    random = attempt.random
    engine = _served(attempt, settings(num_blocks=900), rate=1.0)
    engine.at(0.5, lambda: engine.pass_ns(int(random.uniform(12, 22) * 1e9)))
    engine.run()
    return log_of(engine)


def an_empty_engine(attempt: Attempt) -> RecordedLog:
    """Some requests, and then nobody for five minutes: an idle engine is not a stuck one."""
    engine = _served(attempt, settings(num_blocks=900), rate=1.0, end=25)
    engine.run(until=330)
    return log_of(engine)


def refused_at_the_door(attempt: Attempt) -> RecordedLog:
    """Requests larger than the pool are refused: they wait for nothing and block nobody."""
    random = attempt.random
    config = settings(num_blocks=300, max_model_len=16384)
    engine = _served(attempt, config, rate=1.0)
    for _ in range(round(6 * attempt.load)):
        tokens = about(random, 7000)
        engine.send([Call(at=random.uniform(2, 45), num_prompt_tokens=tokens, max_tokens=100)])
    engine.run()
    return log_of(engine)


def limits_that_nobody_reaches(attempt: Attempt) -> RecordedLog:
    """Each request could ask for more than the pool at its `max_tokens`, and ends long before."""
    random = attempt.random
    config = settings(num_blocks=700, allow_oversize=True, max_model_len=16384)
    engine = Recording(config, random)

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=about(random, 200),
            max_tokens=12000,
            gone_after_seconds=random.uniform(1, 5),
        )

    engine.send(poisson(random, call, rate=1.2 * attempt.load, start=0, end=50))
    engine.run()
    return log_of(engine)


def one_urgent_eviction(attempt: Attempt) -> RecordedLog:
    """An urgent request takes the blocks of one background request, once: what priority is for."""
    random = attempt.random
    config = settings(num_blocks=300, policy="priority")
    engine = Recording(config, random)

    def quick(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=about(random, 60),
            max_tokens=about(random, 40),
            priority=random.randrange(3),
        )

    engine.send([Call(at=0.5, num_prompt_tokens=3300, max_tokens=300, priority=9)])
    engine.send(poisson(random, quick, rate=0.8, start=12, end=70))
    engine.send(burst(random, quick, count=14, at=2, within=0.5))
    engine.run()
    return log_of(engine)


def urgent_among_many(attempt: Attempt) -> RecordedLog:
    """Urgent requests are admitted at once, and no faster than the others in the same steps."""
    random = attempt.random
    engine = Recording(settings(num_blocks=1500, policy="priority"), random)

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=about(random, 180),
            max_tokens=about(random, 120),
            priority=random.choice((0, 5)),
        )

    engine.send(poisson(random, call, rate=4.0 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


def larger_batches(attempt: Attempt) -> RecordedLog:
    """A large batch makes each step longer: slower answers, and no fault."""
    pace = Pace(step_ms=20, decode_us=500)
    config = settings(num_blocks=3000, max_num_seqs=256)
    engine = _served(attempt, config, rate=6.0, end=35, pace=pace)
    engine.run()
    return log_of(engine)


def kept_for_a_moment(attempt: Attempt) -> RecordedLog:
    """Blocks of requests that have ended are kept for a second or two, until they are sent."""
    random = attempt.random
    config = settings(
        num_blocks=900, kv_connector=KVConnectorConfig(connector="producer", role="kv_producer")
    )
    connector = SimulatedConnector(
        saves=lambda request: True, ack_seconds=lambda request: random.uniform(0.5, 2.0)
    )
    engine = _served(attempt, config, rate=2.0, output=30, connector=connector)
    engine.run()
    return log_of(engine)


def one_long_prompt_alone(attempt: Attempt) -> RecordedLog:
    """A prompt of many steps while nobody else is there."""
    random = attempt.random
    config = settings(num_blocks=4000, max_num_batched_tokens=1024, max_model_len=65536)
    engine = Recording(config, random)
    for at in range(2, 62, 20):
        tokens = about(random, 30000 * min(attempt.load, 1.2))
        engine.send([Call(at=at, num_prompt_tokens=tokens, max_tokens=120)])
    engine.run()
    return log_of(engine)


def a_restart_with_the_same_pool(attempt: Attempt) -> RecordedLog:
    """A restart that leaves nearly the same pool, and a rolling traffic."""
    random = attempt.random
    engines = []
    before = random.randint(900, 1100)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 180), max_tokens=about(random, 90))

    for number, size in enumerate((before, round(before * random.uniform(0.8, 1.1)))):
        config = settings(num_blocks=size)
        engine = Recording(config, random, engine=number + 1, started=number * 45.0)
        engine.send(poisson(random, call, rate=1.2 * attempt.load, start=0, end=32))
        engine.run(until=38)
        if number == 0:
            engine.stop()
        engines.append(engine)
    return log_of(*engines)


def ranks_in_step(attempt: Attempt) -> RecordedLog:
    """Four engines of one service with shares that differ by chance and a little affinity."""
    random = attempt.random
    engines = []
    for rank in range(4):
        config = settings(num_blocks=900)
        engine = Recording(config, random, pace=Pace(step_ms=60), engine=rank + 1, dp_rank=rank)

        def call(at: float) -> Call:
            return Call(at=at, num_prompt_tokens=about(random, 140), max_tokens=about(random, 80))

        rate = random.uniform(0.7, 1.4) * attempt.load
        engine.send(poisson(random, call, rate=rate, start=0, end=66))
        engine.run(until=70)
        engines.append(engine)
    return log_of(*engines)


def clients_that_hang_up(attempt: Attempt) -> RecordedLog:
    """A third of the clients leaves in the middle of an answer, and the blocks come back."""
    random = attempt.random
    engine = Recording(settings(num_blocks=700), random)

    def call(at: float) -> Call:
        leaves = random.random() < 0.35
        return Call(
            at=at,
            num_prompt_tokens=about(random, 200),
            max_tokens=about(random, 160),
            gone_after_seconds=random.uniform(0.5, 3) if leaves else None,
        )

    engine.send(poisson(random, call, rate=1.8 * attempt.load, start=0, end=50))
    engine.run()
    return log_of(engine)


LOOKALIKES = {
    cache_resets: ("kv-preemption-pressure", "kv-preemption-thrash", "prefix-cache-thrash"),
    paused_by_an_operator: ("admission-deadlock", "worker-hang", "seq-slot-limit", "undetermined"),
    a_cold_start: ("admission-deadlock", "worker-hang", "frontend-cpu-bound", "undetermined"),
    an_empty_engine: ("admission-deadlock", "worker-hang", "kv-block-leak", "undetermined"),
    refused_at_the_door: ("request-exceeds-kv-capacity", "prompt-mix-exceeds-limits"),
    limits_that_nobody_reaches: ("request-exceeds-kv-capacity", "client-abort-leak"),
    urgent_among_many: ("priority-inversion", "priority-recompute-churn"),
    larger_batches: ("seq-slot-limit", "prefill-stalls-decode", "worker-hang"),
    kept_for_a_moment: ("kv-block-leak", "connector-ack-stuck", "connector-save-stuck"),
    one_long_prompt_alone: ("prefill-head-of-line", "prefill-stalls-decode"),
    a_restart_with_the_same_pool: ("kv-pool-shrunk-by-reserve", "dp-rank-imbalance"),
    ranks_in_step: ("dp-rank-imbalance", "worker-hang"),
    clients_that_hang_up: ("client-abort-leak", "kv-block-leak"),
}
"""Runs without a fault, and the rules that each could wake."""

SCENARIOS = (
    *(
        Scenario(
            name=run.__name__.replace("_", "-"),
            source="scripted",
            expected=None,
            provoke=run,
            silent=silent,
        )
        for run, silent in LOOKALIKES.items()
    ),
    Scenario(
        name="a-few-evictions",
        source="scripted",
        expected=None,
        provoke=a_few_evictions,
        silent=("kv-preemption-pressure", "kv-preemption-thrash"),
        shown=("guard-light-preemption",),
    ),
    Scenario(
        name="one-urgent-eviction",
        source="scripted",
        expected=None,
        provoke=one_urgent_eviction,
        silent=("priority-recompute-churn", "kv-preemption-thrash", "kv-preemption-pressure"),
    ),
)
