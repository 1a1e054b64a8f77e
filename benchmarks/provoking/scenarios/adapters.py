"""LoRA adapters: more of them than slots, and such as fit."""

from __future__ import annotations

from random import Random

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, poisson
from diagnose.reading import QueryLog

OTHER_WAITS = (
    "seq-slot-limit",
    "grammar-wait-stall",
    "remote-kv-wait-stuck",
    "kv-head-of-line",
    "deferred-slot-exhaustion",
    "priority-inversion",
)


def _calls(
    attempt: Attempt, random: Random, adapters: list[str], *, rate: float, tokens: float = 200
) -> list[Call]:
    """Returns requests for random ones of the adapters."""

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=about(random, 150),
            max_tokens=about(random, tokens, 0.4),
            adapter=random.choice(adapters),
        )

    return poisson(random, call, rate=rate * attempt.load, start=0.5, end=45)


def more_adapters_than_fit(attempt: Attempt) -> QueryLog:
    """Steady traffic for a few adapters more than there are slots."""
    random = attempt.random
    slots = random.randint(2, 5)
    adapters = [f"adapter-{n}" for n in range(slots + random.randint(1, 4))]
    engine = Recording(settings(num_blocks=4000, max_loras=slots), random)
    engine.send(_calls(attempt, random, adapters, rate=4.0))
    engine.run()
    return log_of(engine)


def adapter_that_starves(attempt: Attempt) -> QueryLog:
    """Two popular adapters hold both slots; requests of a third wait for a gap."""
    random = attempt.random
    engine = Recording(settings(num_blocks=4000, max_loras=2), random)
    engine.send(_calls(attempt, random, ["popular-1", "popular-2"], rate=3.0))
    engine.send(_calls(attempt, random, ["rare"], rate=0.3))
    engine.run()
    return log_of(engine)


def adapters_with_a_slot_each(attempt: Attempt) -> QueryLog:
    """As many slots as adapters."""
    random = attempt.random
    slots = random.randint(2, 8)
    adapters = [f"adapter-{n}" for n in range(slots)]
    engine = Recording(settings(num_blocks=4000, max_loras=slots), random)
    engine.send(_calls(attempt, random, adapters, rate=4.0))
    engine.run()
    return log_of(engine)


def adapters_that_take_turns(attempt: Attempt) -> QueryLog:
    """More adapters than slots, and so little traffic that slots are mostly free."""
    random = attempt.random
    adapters = [f"adapter-{n}" for n in range(12)]
    engine = Recording(settings(num_blocks=4000, max_loras=8), random)
    engine.send(_calls(attempt, random, adapters, rate=1.0, tokens=60))
    engine.run()
    return log_of(engine)


SCENARIOS = (
    *(
        Scenario(
            name=run.__name__.replace("_", "-"),
            source="scripted",
            expected="lora-slot-contention",
            provoke=run,
            silent=OTHER_WAITS,
        )
        for run in (more_adapters_than_fit, adapter_that_starves)
    ),
    *(
        Scenario(
            name=run.__name__.replace("_", "-"),
            source="scripted",
            expected=None,
            provoke=run,
            silent=("lora-slot-contention", *OTHER_WAITS),
        )
        for run in (adapters_with_a_slot_each, adapters_that_take_turns)
    ),
)
