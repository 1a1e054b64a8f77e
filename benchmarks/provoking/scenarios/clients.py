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


def _traffic(attempt: Attempt, random: Random, change: Callable[[Call], Call]) -> list[Call]:
    """Returns ordinary requests, each of them changed."""

    def call(at: float) -> Call:
        return change(
            Call(at=at, num_prompt_tokens=about(random, 250), max_tokens=about(random, 150))
        )

    return poisson(random, call, rate=2.5 * attempt.load, start=1, end=45)


def _run(attempt: Attempt, random: Random, change: Callable[[Call], Call]) -> Recording:
    """Returns an engine with such traffic."""
    engine = Recording(settings(num_blocks=3000), random)
    engine.send(_traffic(attempt, random, change))
    return engine


def slow_tokenizer(attempt: Attempt) -> QueryLog:
    """The server needs several times as long for a prompt as the engine, at the mean 0.3 s or more.

    Up to a quarter of a second is not worth a word to a rule that has only means.
    """
    random = attempt.random
    slow = random.uniform(0.4, 2.0)
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
    """Callers hang up, the server sees it, and the engine is never told: the answers go on.

    The first caller always does. The pool holds as many answers as there are slots, so that nothing
    is short.
    """
    random = attempt.random
    share = random.uniform(0.1, 0.4)
    few = replace(attempt, load=attempt.load / 4)
    calls = _traffic(few, random, lambda call: replace(call, max_tokens=about(random, 2000)))
    slots, longest = 64, max(call.num_prompt_tokens + call.max_tokens for call in calls)
    pool = slots * (longest // 16 + 2)
    engine = Recording(settings(num_blocks=pool, max_num_seqs=slots), random)
    engine.send(calls)

    def leave(name: str) -> None:
        request = engine.scheduler.requests[name]
        step = engine.scheduler.num_steps
        gone = Event(kind=EventKind.client_gone, step=step, ts=engine.clock())
        engine.tape.record_events([replace(gone, request=request.number)])

    for number, call in enumerate(calls):
        if number == 0 or random.random() < share:
            patience = random.uniform(1, 5)
            engine.at(call.at + patience, lambda name=f"req-{number}": leave(name))  # type: ignore[misc]
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
