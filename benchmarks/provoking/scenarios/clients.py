"""Clients and the server before the engine: late first tokens, callers that hang up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, poisson
from diagnose.reading import QueryLog
from telemetry.records import Event
from telemetry.vocabulary import EventKind

LEAK, FRONT = "client-abort-leak", "frontend-cpu-bound"
OTHERS = ("prefill-head-of-line", "seq-slot-limit", "kv-block-leak", "worker-hang")


def _run(attempt: Attempt, random: Random, change: Callable[[Call], Call]) -> Recording:
    """Returns an engine with traffic, each request of it changed."""

    def call(at: float) -> Call:
        return change(
            Call(at=at, num_prompt_tokens=about(random, 250), max_tokens=about(random, 150))
        )

    engine = Recording(settings(num_blocks=3000), random)
    engine.send(poisson(random, call, rate=2.5 * attempt.load, start=1, end=45))
    return engine


def slow_tokenizer(attempt: Attempt) -> QueryLog:
    """The server needs several times as long for a prompt as the engine."""
    random = attempt.random
    slow = random.uniform(0.3, 2.0)
    engine = _run(
        attempt, random, lambda call: replace(call, frontend_seconds=slow * random.uniform(0.5, 1))
    )
    engine.run()
    return log_of(engine)


def quick_tokenizer(attempt: Attempt) -> QueryLog:
    """The server needs a few milliseconds."""
    random = attempt.random
    engine = _run(
        attempt, random, lambda call: replace(call, frontend_seconds=random.uniform(0.001, 0.008))
    )
    engine.run()
    return log_of(engine)


def slow_prompts(attempt: Attempt) -> QueryLog:
    """First tokens are late because prompts are long; the server before is quick."""
    random = attempt.random

    def long(call: Call) -> Call:
        length = about(random, 3000)
        return replace(call, num_prompt_tokens=length, max_tokens=8, frontend_seconds=0.02)

    engine = _run(replace(attempt, load=attempt.load / 3), random, long)
    engine.run()
    return log_of(engine)


def aborts_that_get_lost(attempt: Attempt) -> QueryLog:
    """Callers hang up, the server sees it, and the engine is never told: the answers go on."""
    random = attempt.random
    share = random.uniform(0.1, 0.4)
    few = replace(attempt, load=attempt.load / 4)
    engine = _run(few, random, lambda call: replace(call, max_tokens=about(random, 2000)))

    def leave(name: str) -> None:
        request = engine.scheduler.requests.get(name)
        if request is not None:
            step = engine.scheduler.num_steps
            gone = Event(kind=EventKind.client_gone, step=step, ts=engine.clock())
            engine.tape.record_events([replace(gone, request=request.number)])

    for number in range(20):
        if random.random() < share or number == 0:
            engine.at(5 + 2 * number, lambda name=f"req-{number}": leave(name))  # type: ignore[misc]
    engine.run(until=90)
    return log_of(engine)


def aborts_that_arrive(attempt: Attempt) -> QueryLog:
    """Callers hang up, and their requests end at once."""
    random = attempt.random
    share = random.uniform(0.2, 0.6)

    def maybe(call: Call) -> Call:
        patience = random.uniform(0.05, 3.0) if random.random() < share else None
        return replace(call, gone_after_seconds=patience)

    engine = _run(attempt, random, maybe)
    engine.run()
    return log_of(engine)


def _scenario(
    provoke: Callable[[Attempt], QueryLog], expected: str | None, *silent: str
) -> Scenario:
    return Scenario(
        name=provoke.__name__.replace("_", "-"),
        source="scripted",
        expected=expected,
        provoke=provoke,
        silent=(*silent, *OTHERS),
    )


SCENARIOS = (
    _scenario(slow_tokenizer, FRONT, LEAK),
    _scenario(quick_tokenizer, None, FRONT, LEAK),
    _scenario(slow_prompts, None, FRONT),
    _scenario(aborts_that_get_lost, LEAK, FRONT),
    _scenario(aborts_that_arrive, None, LEAK),
)
