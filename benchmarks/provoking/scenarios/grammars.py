"""Structured output: grammars that are waited for, bitmasks that cost, and neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst, poisson
from diagnose.reading import QueryLog
from engine.scheduler import SchedulerOutput
from engine.scheduler.output import ModelRunnerOutput

OTHER_WAITS = (
    "remote-kv-wait-stuck",
    "lora-slot-contention",
    "deferred-slot-exhaustion",
    "seq-slot-limit",
)
"""Rules of waits that look the same from outside."""


class Compiler:
    """Compiles one grammar after the other, each once; `seconds` draws how long one takes."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._free_at = 0.0
        self._ready_at: dict[str, float] = {}

    def asked(self, call: Call) -> Call:
        """Returns a call that waits for its grammar as long as the queue before it takes."""
        assert call.grammar is not None
        if call.grammar not in self._ready_at:
            self._free_at = max(self._free_at, call.at) + self._seconds()
            self._ready_at[call.grammar] = self._free_at
        return replace(call, blocked_seconds=max(0.0, self._ready_at[call.grammar] - call.at))


def _plain(attempt: Attempt, random: Random, *, end: float) -> list[Call]:
    """Returns requests without a grammar."""

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 200), max_tokens=about(random, 80))

    return poisson(random, call, rate=2.0 * attempt.load, start=0.5, end=end)


def _constrained(random: Random, num_grammars: int) -> Callable[[float], Call]:
    """Returns what makes requests with one of so many grammars."""

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=about(random, 150),
            max_tokens=about(random, 60),
            grammar=f"schema {random.randrange(num_grammars)}",
        )

    return call


def burst_of_schemas(attempt: Attempt) -> QueryLog:
    """Many requests at once, each with a schema that nobody has sent before."""
    random = attempt.random
    slowest = random.uniform(0.4, 1.5)
    compiler = Compiler(lambda: random.uniform(0.3, 1.0) * slowest)
    engine = Recording(settings(num_blocks=2000), random)
    engine.send(_plain(attempt, random, end=40))
    count = round(25 * max(1.0, attempt.load))
    calls = burst(random, _constrained(random, 10**6), count=count, at=random.uniform(8, 15))
    engine.send([compiler.asked(call) for call in sorted(calls, key=lambda call: call.at)])
    engine.run()
    return log_of(engine)


def compile_that_never_ends(attempt: Attempt) -> QueryLog:
    """A few grammars are never there, and nobody is told; the others take no time."""
    random = attempt.random
    engine = Recording(settings(num_blocks=2000), random)
    engine.send(_plain(attempt, random, end=50))
    calls = poisson(random, _constrained(random, 40), rate=1.0, start=1, end=50)
    lost = set(random.sample(range(len(calls)), min(len(calls), random.randint(2, 5))))
    engine.send(
        replace(call, blocked_seconds=float("inf") if number in lost else 0.02)
        for number, call in enumerate(calls)
    )
    engine.run(until=random.uniform(90, 140))
    return log_of(engine)


def bitmasks_that_cost(attempt: Attempt) -> QueryLog:
    """Filling bitmasks takes a good part of each step."""
    us = attempt.random.uniform(400, 900)
    return _filling(attempt, us_a_row=us, share=1.0)


def bitmasks_that_do_not_matter(attempt: Attempt) -> QueryLog:
    """Half of the requests have a grammar; compiling and filling take a moment."""
    us = attempt.random.uniform(10, 60)
    return _filling(attempt, us_a_row=us, share=0.5)


def _filling(attempt: Attempt, *, us_a_row: float, share: float) -> QueryLog:
    random = attempt.random
    compiler = Compiler(lambda: random.uniform(0.01, 0.08))

    def fill(output: SchedulerOutput, result: ModelRunnerOutput) -> ModelRunnerOutput:
        num_rows = sum((output.structured_output_rows or {}).values())
        if not num_rows:
            return result
        took = int(num_rows * us_a_row * 1000 * random.uniform(0.9, 1.1))
        engine.pass_ns(took)
        return replace(result, bitmask_ns=took)

    engine = Recording(settings(num_blocks=2000), random, on_step=fill)
    make = _constrained(random, 30)
    calls = poisson(random, make, rate=6.0 * attempt.load, start=0.5, end=40)
    engine.send(
        compiler.asked(call) if random.random() < share else replace(call, grammar=None)
        for call in calls
    )
    engine.run()
    return log_of(engine)


def schemas_that_come_again(attempt: Attempt) -> QueryLog:
    """Bursts of requests with the same few schemas: each is waited for once, and briefly."""
    random = attempt.random
    compiler = Compiler(lambda: random.uniform(0.05, 0.25))
    engine = Recording(settings(num_blocks=2000), random)
    engine.send(_plain(attempt, random, end=40))
    for start in (5, 15, 25, 35):
        calls = burst(random, _constrained(random, 5), count=round(15 * attempt.load), at=start)
        engine.send([compiler.asked(call) for call in sorted(calls, key=lambda call: call.at)])
    engine.run()
    return log_of(engine)


def _scenario(provoke: Callable[[Attempt], QueryLog], expected: str | None) -> Scenario:
    own = ("grammar-wait-stall", "grammar-step-cost")
    return Scenario(
        name=provoke.__name__.replace("_", "-"),
        source="scripted",
        expected=expected,
        provoke=provoke,
        silent=(*OTHER_WAITS, *(rule for rule in own if rule != expected)),
    )


SCENARIOS = (
    _scenario(burst_of_schemas, "grammar-wait-stall"),
    _scenario(compile_that_never_ends, "grammar-wait-stall"),
    _scenario(bitmasks_that_cost, "grammar-step-cost"),
    _scenario(bitmasks_that_do_not_matter, None),
    _scenario(schemas_that_come_again, None),
)
