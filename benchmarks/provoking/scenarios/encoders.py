"""Encoder items that never find a place, and such as wait their turn."""

from __future__ import annotations

from random import Random

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, poisson
from diagnose.reading import QueryLog
from engine.config import EncoderConfig
from engine.encoder_cache import EncoderItem

RULE = "encoder-budget-zero-progress"
OTHER_STALLS = ("worker-hang", "request-exceeds-kv-capacity", "kv-block-leak", "kv-head-of-line")


def _call(random: Random, at: float, *items: int) -> Call:
    """Returns a request with items of so many embeddings, and text around them."""
    placed, position = [], about(random, 40)
    for num_embeds in items:
        key = f"image-{random.getrandbits(48):x}"
        placed.append(EncoderItem(key=key, position=position, num_embeds=num_embeds))
        position += num_embeds + about(random, 20)
    return Call(
        at=at, num_prompt_tokens=position, max_tokens=about(random, 60), encoder_items=tuple(placed)
    )


def _ordinary(attempt: Attempt, random: Random, *, most: int, end: float) -> list[Call]:
    """Returns requests with one to three items of ordinary size."""

    def call(at: float) -> Call:
        sizes = (random.randint(most // 6, most) for _ in range(random.randint(1, 3)))
        return _call(random, at, *sizes)

    return poisson(random, call, rate=1.2 * attempt.load, start=0.5, end=end)


def item_too_large(attempt: Attempt) -> QueryLog:
    """One item has more embeddings than the encoder's budget or its cache."""
    random = attempt.random
    budget = random.choice((1024, 2048))
    cache = budget * random.choice((1, 2))
    encoder = EncoderConfig(compute_budget=budget, cache_size=cache)
    engine = Recording(settings(num_blocks=3000, encoder=encoder, max_model_len=8192), random)
    comes = random.uniform(10, 20)
    engine.send(_ordinary(attempt, random, most=budget // 2, end=comes + 20))
    engine.send([_call(random, comes, round(budget * random.uniform(1.05, 1.9)))])
    engine.run(until=comes + random.uniform(75, 110))
    return log_of(engine)


def chunk_that_must_be_aligned(attempt: Attempt) -> QueryLog:
    """Chunks end on multiples of so many tokens, and an item in the way leaves less than one.

    Two items lie within the first chunk, and together they are more than a step may encode: the
    chunk would have to end between them, which alignment forbids.
    """
    random = attempt.random
    alignment = random.choice((512, 1024))
    budget = round(alignment * 0.6)
    encoder = EncoderConfig(compute_budget=budget, cache_size=4 * alignment)
    config = settings(
        num_blocks=3000, encoder=encoder, max_model_len=8192, chunk_alignment=alignment
    )
    engine = Recording(config, random)
    comes = random.uniform(10, 20)
    engine.send(_ordinary(attempt, random, most=alignment // 8, end=comes + 20))
    half = round(budget * random.uniform(0.6, 0.7))
    call = _call(random, comes, half, half)
    engine.send([Call(**{name: getattr(call, name) for name in Call.__slots__} | {
        "num_prompt_tokens": 2 * alignment + 100
    })])  # fmt: skip
    engine.run(until=comes + random.uniform(75, 110))
    return log_of(engine)


def items_that_fit(attempt: Attempt) -> QueryLog:
    """Every item fits, and budget and cache are shared by several requests at a time."""
    random = attempt.random
    encoder = EncoderConfig(compute_budget=2048, cache_size=4096)
    engine = Recording(settings(num_blocks=4000, encoder=encoder, max_model_len=8192), random)
    engine.send(_ordinary(attempt, random, most=1000, end=50))
    engine.run()
    return log_of(engine)


SCENARIOS = (
    *(
        Scenario(
            name=run.__name__.replace("_", "-"),
            source="scripted",
            expected=RULE,
            provoke=run,
            silent=OTHER_STALLS,
        )
        for run in (item_too_large, chunk_that_must_be_aligned)
    ),
    Scenario(
        name="items-that-fit",
        source="scripted",
        expected=None,
        provoke=items_that_fit,
        silent=(RULE, *OTHER_STALLS),
    ),
)
