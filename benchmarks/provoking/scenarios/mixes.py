"""Lengths that change: limits that were right for the old mix, and are or are not for the new one.

A fixed number of callers, each of whom asks again when it has its answer. More and more answers are
long ones. The callers are at different places in their answers, so that all fit although the pool
could not hold them at full length: nothing is broken, and little is left.
"""

from __future__ import annotations

from benchmarks.provoking.recording import RecordedLog, Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about

MIX = "prompt-mix-exceeds-limits"
LONGER_FROM, ALL_LONGER_FROM = 15.0, 45.0
"""Seconds after the start from which some answers are long, and all are."""
ENDS_AT = 80.0
"""Seconds after the start from which nobody asks again."""


def _run(attempt: Attempt, blocks_of_each: int) -> RecordedLog:
    """Returns a run whose pool has so many blocks for each caller."""
    random = attempt.random
    num_callers = max(8, round(14 * attempt.load))

    def call(now: float, at: float) -> Call:
        part = (now - LONGER_FROM) / (ALL_LONGER_FROM - LONGER_FROM)
        outputs = 420 if random.random() < part else 140
        return Call(at=at, num_prompt_tokens=64, max_tokens=about(random, outputs, 0.1))

    def again(engine: Recording, number: int) -> Call | None:
        return call(engine.seconds, 0.05) if engine.seconds < ENDS_AT else None

    config = settings(num_blocks=num_callers * blocks_of_each)
    engine = Recording(config, random, on_end=again)
    engine.send([call(0, 8 * index / num_callers) for index in range(num_callers)])
    engine.run()
    return log_of(engine)


def answers_outgrow_the_limits(attempt: Attempt) -> RecordedLog:
    """The longer answers are too long for the pool to hold one of each caller to its end."""
    return _run(attempt, 27)


def answers_grow_within_the_limits(attempt: Attempt) -> RecordedLog:
    """The pool holds the longer answers of all callers to their end."""
    return _run(attempt, 36)


PRESSURE = ("kv-preemption-pressure", "kv-preemption-thrash", "queueing-with-kv-full")

SCENARIOS = (
    Scenario(
        name="answers-outgrow-the-limits",
        source="scripted",
        expected=None,
        provoke=answers_outgrow_the_limits,
        silent=(*PRESSURE, "seq-slot-limit"),
        shown=(MIX,),
    ),
    Scenario(
        name="answers-grow-within-the-limits",
        source="scripted",
        expected=None,
        provoke=answers_grow_within_the_limits,
        silent=(*PRESSURE, MIX),
    ),
)
