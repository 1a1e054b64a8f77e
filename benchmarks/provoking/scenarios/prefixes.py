"""The prefix cache: what was there and is gone, what is there and cannot be found."""

from __future__ import annotations

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, poisson
from diagnose.reading import QueryLog
from engine.config import KVGroupConfig


def conversations_push_each_other_out(attempt: Attempt) -> QueryLog:
    """More long conversations take turns than the pool can remember."""
    random = attempt.random
    engine = Recording(settings(num_blocks=random.randint(480, 600), max_model_len=8192), random)
    num_conversations = round(random.randint(14, 18) * max(1.0, attempt.load))
    turns = iter(range(10_000))

    def turn(at: float) -> Call:
        name = f"conversation {next(turns) % num_conversations}"
        return Call(
            at=at,
            num_prompt_tokens=1200 + about(random, 40),
            max_tokens=about(random, 30),
            shared=name,
            num_shared_tokens=1200,
        )

    engine.send(poisson(random, turn, rate=1.5 * attempt.load, start=0, end=50))
    engine.run()
    return log_of(engine)


def windows_lost_their_part(attempt: Attempt) -> QueryLog:
    """Full attention still has a shared prefix when it comes again; the window recycled its part.

    Each prompt goes on far beyond the shared text, so that the sliding-window group has given the
    prefix's end back long before the full group does.
    """
    random = attempt.random
    window = random.choice((128, 256))
    config = settings(
        num_blocks=random.randint(1250, 1350),
        max_model_len=8192,
        groups=(
            KVGroupConfig("full", 16),
            KVGroupConfig("sliding_window", 16, window),
        ),
    )
    engine = Recording(config, random)
    turns = iter(range(10_000))

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=1024 + about(random, 2500, 0.1),
            max_tokens=about(random, 110),
            shared=f"system prompt {next(turns) % 3}",
            num_shared_tokens=1024,
        )

    engine.send(poisson(random, call, rate=1.3 * attempt.load, start=0, end=50))
    engine.run()
    return log_of(engine)


def salted_for_everybody(attempt: Attempt) -> QueryLog:
    """A long system prompt that all share, under a cache salt of each caller's own."""
    random = attempt.random
    engine = Recording(settings(num_blocks=6000, max_model_len=8192), random)
    numbers = iter(range(10_000))

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=900 + about(random, 60),
            max_tokens=about(random, 40),
            shared="system prompt",
            num_shared_tokens=900,
            cache_salt=f"caller {next(numbers)}",
        )

    engine.send(poisson(random, call, rate=1.5 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


def documents_behind_a_date(attempt: Attempt) -> QueryLog:
    """A few documents that come again and again, each time behind a line that is never the same.

    The line is not always as long, so that what repeats does not keep its distance from a block's
    beginning.
    """
    random = attempt.random
    engine = Recording(settings(num_blocks=2000, max_model_len=8192), random)

    def call(at: float) -> Call:
        front = random.randint(10, 13)
        return Call(
            at=at,
            num_prompt_tokens=front + 1100 + about(random, 60),
            max_tokens=about(random, 40),
            shared=f"document {random.randrange(3)}",
            num_shared_tokens=1100,
            num_tokens_in_front=front,
        )

    engine.send(poisson(random, call, rate=1.5 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


def tenants_apart(attempt: Attempt) -> QueryLog:
    """Four tenants with one system prompt, each under its own salt: what is apart is meant to be.

    Each tenant's first request computes what the other tenants have, and all its others hit.
    """
    random = attempt.random
    engine = Recording(settings(num_blocks=2000, max_model_len=8192), random)

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=800 + about(random, 150),
            max_tokens=about(random, 40),
            shared="system prompt",
            num_shared_tokens=800,
            cache_salt=f"tenant {random.randrange(4)}",
        )

    engine.send(poisson(random, call, rate=1.5 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


def random_prompts(attempt: Attempt) -> QueryLog:
    """Prompts that have nothing in common: the cache hits nothing, and nothing is wrong."""
    random = attempt.random
    engine = Recording(settings(num_blocks=700), random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 350), max_tokens=about(random, 60))

    engine.send(poisson(random, call, rate=1.5 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


def shared_prompts_that_hit(attempt: Attempt) -> QueryLog:
    """A system prompt that all share, and that is found."""
    random = attempt.random
    engine = Recording(settings(num_blocks=900, max_model_len=8192), random)

    def call(at: float) -> Call:
        return Call(
            at=at,
            num_prompt_tokens=800 + about(random, 60),
            max_tokens=about(random, 60),
            shared=f"system prompt {random.randrange(3)}",
            num_shared_tokens=800,
        )

    engine.send(poisson(random, call, rate=1.6 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


def hits_of_the_evicted(attempt: Attempt) -> QueryLog:
    """Random prompts under pressure: all that hits is what evicted requests find of themselves.

    The pool grows with the load: those who are there at a time need a little more than there is.
    """
    random = attempt.random
    num_blocks = round(random.randint(220, 260) * attempt.load)
    engine = Recording(settings(num_blocks=num_blocks), random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 130), max_tokens=about(random, 230, 0.3))

    engine.send(poisson(random, call, rate=2.7 * attempt.load, start=0, end=45))
    engine.run()
    return log_of(engine)


CACHE_RULES = ("prefix-cache-thrash", "hybrid-cache-alignment", "prefix-identity-miss")


def _others(rule: str) -> tuple[str, ...]:
    return tuple(each for each in CACHE_RULES if each != rule)


SCENARIOS = (
    Scenario(
        name="conversations-push-each-other-out",
        source="scripted",
        expected="prefix-cache-thrash",
        provoke=conversations_push_each_other_out,
        silent=_others("prefix-cache-thrash"),
    ),
    Scenario(
        name="windows-lost-their-part",
        source="scripted",
        expected="hybrid-cache-alignment",
        provoke=windows_lost_their_part,
        silent=_others("hybrid-cache-alignment"),
    ),
    Scenario(
        name="salted-for-everybody",
        source="scripted",
        expected="prefix-identity-miss",
        provoke=salted_for_everybody,
        silent=_others("prefix-identity-miss"),
    ),
    Scenario(
        name="documents-behind-a-date",
        source="scripted",
        expected="prefix-identity-miss",
        provoke=documents_behind_a_date,
        silent=_others("prefix-identity-miss"),
    ),
    Scenario(
        name="tenants-apart",
        source="scripted",
        expected=None,
        provoke=tenants_apart,
        silent=CACHE_RULES,
    ),
    Scenario(
        name="random-prompts",
        source="scripted",
        expected=None,
        provoke=random_prompts,
        silent=CACHE_RULES,
    ),
    Scenario(
        name="shared-prompts-that-hit",
        source="scripted",
        expected=None,
        provoke=shared_prompts_that_hit,
        silent=CACHE_RULES,
    ),
    Scenario(
        name="hits-of-the-evicted",
        source="scripted",
        expected="kv-preemption-pressure",
        provoke=hits_of_the_evicted,
        silent=CACHE_RULES,
        shown=("guard-prefix-hit-inflated",),
    ),
)
