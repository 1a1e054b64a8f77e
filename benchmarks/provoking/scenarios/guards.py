"""What looks like a fault on a metrics page, and is none: the guards note it.

Only scrapes have these two riddles; a record of steps says how it is.
"""

from __future__ import annotations

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst
from diagnose.reading import QueryLog


def ranks_with_nothing_to_do(attempt: Attempt) -> QueryLog:
    """Two ranks wait for each other while nobody asks for anything: the log may well complain."""
    random = attempt.random
    engine = Recording(settings(num_blocks=2000), random)
    engine.run(until=random.uniform(200, 600))
    return log_of(engine).scraped(tensor_parallel_size=random.choice((2, 4, 8)))


def short_requests_in_large_blocks(attempt: Attempt) -> QueryLog:
    """Requests of a few tokens fill the pool's blocks, and leave most of each empty."""
    random = attempt.random
    num_clients = round(random.randint(24, 40) * attempt.load)
    blocks = round(num_clients / random.uniform(0.55, 0.85))

    def another(engine: Recording, number: int) -> Call | None:
        return _short() if engine.seconds < 60 else None

    def _short(at: float = 0.0) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 14), max_tokens=about(random, 14))

    config = settings(num_blocks=blocks, block_size=64)
    engine = Recording(config, random, on_end=another)
    engine.send(burst(random, _short, count=num_clients, at=0.5))
    engine.run()
    return log_of(engine).scraped()


SCENARIOS = (
    Scenario(
        name="ranks-with-nothing-to-do",
        source="scripted",
        expected=None,
        provoke=ranks_with_nothing_to_do,
        silent=("worker-hang", "admission-deadlock"),
        shown=("guard-idle-broadcast-noise",),
    ),
    Scenario(
        name="short-requests-in-large-blocks",
        source="scripted",
        expected=None,
        provoke=short_requests_in_large_blocks,
        silent=("kv-preemption-pressure", "queueing-with-kv-full", "kv-block-leak"),
        shown=("guard-kv-gauge-misread",),
    ),
)
