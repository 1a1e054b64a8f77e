"""Requests that can never fit, blocks that nobody gives back, and a pool that shrank."""

from __future__ import annotations

from random import Random

from benchmarks.provoking.recording import RecordedLog, Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, Make, about, poisson
from engine.kv_cache import Shortage
from engine.request import Request
from telemetry.vocabulary import StopReason

OVERSIZE = "request-exceeds-kv-capacity"
NOT_OVERSIZE = (
    "kv-preemption-pressure",
    "kv-head-of-line",
    "kv-block-leak",
    "connector-parked-deadlock",
)


def _ordinary(random: Random) -> Make:
    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 160), max_tokens=about(random, 90))

    return call


def oversized_prompt(attempt: Attempt) -> RecordedLog:
    """A prompt that is longer than the whole pool, among ordinary ones."""
    random = attempt.random
    pool = random.randint(200, 300)
    engine = Recording(settings(num_blocks=pool, allow_oversize=True, max_model_len=8192), random)
    engine.send(poisson(random, _ordinary(random), rate=1.5 * attempt.load, start=0, end=40))
    tokens = round(16 * pool * random.uniform(1.02, 1.5))
    engine.send([Call(at=random.uniform(10, 25), num_prompt_tokens=tokens, max_tokens=50)])
    engine.run(until=100)
    return log_of(engine)


def oversized_by_the_null_block(attempt: Attempt) -> RecordedLog:
    """A prompt that fills just the blocks of the pool's setting, one of which is never handed out.

    `num_gpu_blocks` counts the null block.
    """
    random = attempt.random
    config = settings(num_blocks=random.randint(150, 260), allow_oversize=True, max_model_len=8192)
    engine = Recording(config, random)
    engine.send(poisson(random, _ordinary(random), rate=1.2 * attempt.load, start=0, end=40))
    tokens = 16 * config.cache.num_gpu_blocks - random.randint(0, 14)
    engine.send([Call(at=random.uniform(8, 20), num_prompt_tokens=tokens, max_tokens=8)])
    engine.run(until=90)
    return log_of(engine)


def outgrows_the_pool(attempt: Attempt) -> RecordedLog:
    """A request that fits when it comes and outgrows the pool while it decodes, alone."""
    random = attempt.random
    pool = random.randint(70, 110)
    config = settings(num_blocks=pool, allow_oversize=True, max_model_len=8192)
    engine = Recording(config, random)
    engine.send(poisson(random, _ordinary(random), rate=0.5 * attempt.load, start=0, end=15))
    prompt = round(16 * pool * random.uniform(0.75, 0.85))
    engine.send([Call(at=3, num_prompt_tokens=prompt, max_tokens=2000)])
    engine.run(until=80)
    return log_of(engine)


def _clients_that_leave(attempt: Attempt) -> Recording:
    """Returns an engine with traffic whose long requests lose their clients, for 20 s."""
    random = attempt.random
    engine = Recording(settings(num_blocks=random.randint(420, 520)), random)
    ordinary = _ordinary(random)

    def hangs_up(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 420), max_tokens=900, gone_after_seconds=2.5
        )

    engine.send(poisson(random, ordinary, rate=0.7 * attempt.load, start=0, end=190))
    engine.send(poisson(random, hangs_up, rate=0.8 * attempt.load, start=5, end=25))
    return engine


def lost_releases(attempt: Attempt) -> RecordedLog:
    """Blocks of aborted requests are never given back, and nobody holds them.

    A fault put into the run: what frees a request's blocks when its client hangs up sets them apart
    and forgets it.
    """
    engine = _clients_that_leave(attempt)
    kv = engine.scheduler.kv

    def lose(request: Request, *, uncache_from: int | None = None) -> int:
        has_hung_up = request.num_output_tokens < request.sampling.max_tokens
        if has_hung_up and kv.holds(request):
            kv.set_apart(request)
            return 0
        return release(request, uncache_from=uncache_from)

    release, kv.release = kv.release, lose  # type: ignore[method-assign]
    engine.run(until=200)
    return log_of(engine)


def releases_that_come_back(attempt: Attempt) -> RecordedLog:
    """The same clients, and each block comes back."""
    engine = _clients_that_leave(attempt)
    engine.run(until=200)
    return log_of(engine)


def refused_without_a_reason(attempt: Attempt) -> RecordedLog:
    """Nobody is admitted any more although blocks are free, and nothing says why.

    A fault put into the run: from some moment on the KV cache says that blocks are short, whoever
    asks. Only the standstill can be found.
    """
    random = attempt.random
    engine = Recording(settings(num_blocks=random.randint(300, 500)), random)
    kv = engine.scheduler.kv

    def refuse(request: Request, *args: object, **named: object) -> Shortage:
        return Shortage(StopReason.kv_blocks_chunk, num_blocks_needed=kv.num_blocks_of(64))

    def break_it() -> None:
        kv.admit = refuse  # type: ignore[method-assign, assignment]

    engine.send(poisson(random, _ordinary(random), rate=1.5 * attempt.load, start=0, end=60))
    engine.at(random.uniform(15, 25), break_it)
    engine.run(until=110)
    return log_of(engine)


def smaller_pool_after_a_restart(attempt: Attempt) -> RecordedLog:
    """A restart with the same flags leaves under half of the pool; the traffic still fits."""
    random = attempt.random
    before = random.randint(1800, 2400)
    after = round(before * random.uniform(0.3, 0.5))
    engines = []
    for number, size in enumerate((before, after)):
        config = settings(num_blocks=size)
        engine = Recording(config, random, engine=number + 1, started=number * 50.0)
        traffic = _ordinary(random)
        engine.send(poisson(random, traffic, rate=1.2 * attempt.load, start=0, end=35))
        engine.run(until=40)
        if number == 0:
            engine.stop()
        engines.append(engine)
    return log_of(*engines)


SCENARIOS = (
    *(
        Scenario(
            name=run.__name__.replace("_", "-"),
            source="scripted",
            expected=OVERSIZE,
            provoke=run,
            silent=NOT_OVERSIZE,
        )
        for run in (oversized_prompt, oversized_by_the_null_block, outgrows_the_pool)
    ),
    Scenario(
        name="lost-releases",
        source="scripted",
        expected="kv-block-leak",
        provoke=lost_releases,
        silent=("connector-ack-stuck", OVERSIZE, "kv-preemption-thrash"),
    ),
    Scenario(
        name="releases-that-come-back",
        source="scripted",
        expected=None,
        provoke=releases_that_come_back,
        silent=("kv-block-leak", "client-abort-leak", "kv-preemption-pressure"),
    ),
    Scenario(
        name="refused-without-a-reason",
        source="scripted",
        expected="admission-deadlock",
        provoke=refused_without_a_reason,
        silent=(OVERSIZE, "worker-hang", "kv-head-of-line", "seq-slot-limit", "kv-block-leak"),
    ),
    Scenario(
        name="smaller-pool-after-a-restart",
        source="scripted",
        expected="kv-pool-shrunk-by-reserve",
        provoke=smaller_pool_after_a_restart,
        silent=("kv-block-leak", "gpu-memory-overcommit-oom"),
    ),
)
