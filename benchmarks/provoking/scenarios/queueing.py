"""Requests that wait although the engine is fine: for slots, blocks, tokens, or their turn."""

from __future__ import annotations

from benchmarks.provoking.pace import Pace
from benchmarks.provoking.recording import RecordedLog, Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst, poisson
from engine.config import SpeculationConfig


def too_few_slots(attempt: Attempt) -> RecordedLog:
    """More requests than slots, in a pool that is mostly free."""
    random = attempt.random
    slots = random.randint(6, 10)
    engine = Recording(settings(num_blocks=900, max_num_seqs=slots), random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 140), max_tokens=about(random, 160))

    rate = 1.6 * attempt.load * slots / 4.5  # an answer takes some 4.5 s
    engine.send(poisson(random, call, rate=rate, start=0, end=45))
    engine.run()
    return log_of(engine)


def too_few_active_slots(attempt: Attempt) -> RecordedLog:
    """The same by `max_num_active_seqs`, which is lower."""
    random = attempt.random
    slots = random.randint(6, 10)
    config = settings(num_blocks=900, max_num_seqs=64, max_num_active_seqs=slots)
    engine = Recording(config, random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 140), max_tokens=about(random, 160))

    rate = 1.6 * attempt.load * slots / 4.5
    engine.send(poisson(random, call, rate=rate, start=0, end=45))
    engine.run()
    return log_of(engine)


def large_prompt_at_the_head(attempt: Attempt) -> RecordedLog:
    """Every so often a prompt that waits until nearly all are done, with small ones behind it.

    With the watermark it needs 92 to 97 % of the pool, of which the small ones have more even at
    four fifths of the load: 7 or 8 at once, 14 blocks each. The pool holds at full length all who
    have queued meanwhile, so that nobody is evicted once it is through.
    """
    random = attempt.random
    pool = 640
    config = settings(num_blocks=pool, watermark=0.12, max_model_len=16384)
    engine = Recording(config, random)

    def small(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 90), max_tokens=about(random, 240, 0.1))

    def large(at: float) -> Call:
        tokens = round(16 * pool * random.uniform(0.8, 0.85))
        return Call(at=at, num_prompt_tokens=tokens, max_tokens=30)

    engine.send(poisson(random, small, rate=1.5 * attempt.load, start=0, end=60))
    engine.send([large(at) for at in (8.0, 20.0, 32.0, 44.0)])
    engine.run(until=70)
    return log_of(engine)


def pool_full_and_queued(attempt: Attempt) -> RecordedLog:
    """More of equal requests than the pool holds; a watermark keeps them from evictions."""
    random = attempt.random
    pool = random.randint(400, 480)
    engine = Recording(settings(num_blocks=pool, watermark=0.03), random)

    def call(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 300, 0.3), max_tokens=random.randint(6, 10)
        )

    engine.send(poisson(random, call, rate=60 * attempt.load, start=0, end=25))
    engine.run(until=45)
    return log_of(engine)


def long_prompts_take_the_budget(attempt: Attempt) -> RecordedLog:
    """Prompts of many steps take each step's tokens, while short ones wait behind them."""
    random = attempt.random
    budget = random.choice((512, 1024))
    config = settings(num_blocks=4000, max_num_batched_tokens=budget, max_model_len=32768)
    engine = Recording(config, random)

    def short(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 60), max_tokens=about(random, 40))

    def long(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=budget * random.randint(20, 30), max_tokens=20)

    engine.send(poisson(random, short, rate=1.5 * attempt.load, start=0, end=50))
    engine.send([long(at) for at in (6.0, 17.0, 28.0, 39.0)])
    engine.run(until=60)
    return log_of(engine)


def urgent_behind_full_slots(attempt: Attempt) -> RecordedLog:
    """Unimportant long answers hold all slots; urgent requests wait for one."""
    random = attempt.random
    slots = random.randint(5, 8)
    config = settings(num_blocks=1200, max_num_seqs=slots, policy="priority")
    engine = Recording(config, random)

    def background(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 120), max_tokens=about(random, 500), priority=5
        )

    def urgent(at: float) -> Call:
        return Call(
            at=at, num_prompt_tokens=about(random, 60), max_tokens=about(random, 30), priority=0
        )

    engine.send(burst(random, background, count=slots, at=0.5))
    engine.send(poisson(random, background, rate=slots / 13, start=2, end=45))
    engine.send(poisson(random, urgent, rate=0.6 * attempt.load, start=4, end=45))
    engine.run(until=55)
    return log_of(engine)


def no_aligned_chunk_left(attempt: Attempt) -> RecordedLog:
    """Drafts leave most of a step's tokens, but too few for a chunk of a hybrid model.

    A chunk ends on a multiple of `chunk_alignment`. While each answer takes one token a prompt gets
    its chunk in every step; once the drafter finds drafts for them it gets nothing, although nine
    tenths of the step are left.
    """
    random = attempt.random
    alignment = random.choice((256, 512))
    num_answers = max(4, round(8 * attempt.load))
    num_drafts = 3
    config = settings(
        num_blocks=8000,
        chunk_alignment=alignment,
        max_num_batched_tokens=alignment + num_answers,
        max_model_len=65536,
        speculation=SpeculationConfig(method="ngram", num_speculative_tokens=num_drafts),
    )
    engine = Recording(config, random, dense=True, num_accepted=lambda request_id, num: num)
    engine.runner.num_drafts = 0
    engine.at(3, lambda: setattr(engine.runner, "num_drafts", num_drafts))

    def answer(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 12), max_tokens=about(random, 700))

    engine.send(burst(random, answer, count=num_answers, at=0.1, within=0.1))
    engine.send([Call(at=2, num_prompt_tokens=alignment * 100, max_tokens=20)])
    engine.run(until=25)
    return log_of(engine)


def uneven_ranks(attempt: Attempt) -> RecordedLog:
    """Four engines of one service; one gets most of the requests."""
    random = attempt.random
    favoured = random.randrange(4)
    engines = []
    for rank in range(4):
        config = settings(num_blocks=900, max_num_seqs=12)
        pace = Pace(step_ms=60)
        engine = Recording(config, random, pace=pace, engine=rank + 1, dp_rank=rank)

        def call(at: float) -> Call:
            return Call(at=at, num_prompt_tokens=about(random, 140), max_tokens=about(random, 90))

        rate = (3.6 if rank == favoured else 0.4) * attempt.load
        engine.send(poisson(random, call, rate=rate, start=0, end=68))
        engine.run(until=72)
        engines.append(engine)
    return log_of(*engines)


SCENARIOS = (
    *(
        Scenario(
            name=run.__name__.replace("_", "-"),
            source="scripted",
            expected="seq-slot-limit",
            provoke=run,
            silent=("kv-preemption-pressure", "queueing-with-kv-full", "admission-deadlock"),
        )
        for run in (too_few_slots, too_few_active_slots)
    ),
    Scenario(
        name="large-prompt-at-the-head",
        source="scripted",
        expected="kv-head-of-line",
        provoke=large_prompt_at_the_head,
        silent=("prefill-head-of-line", "request-exceeds-kv-capacity", "seq-slot-limit"),
    ),
    Scenario(
        name="pool-full-and-queued",
        source="scripted",
        expected="queueing-with-kv-full",
        provoke=pool_full_and_queued,
        silent=("kv-preemption-pressure", "kv-head-of-line", "seq-slot-limit"),
    ),
    Scenario(
        name="long-prompts-take-the-budget",
        source="scripted",
        expected="prefill-head-of-line",
        provoke=long_prompts_take_the_budget,
        silent=("kv-head-of-line", "seq-slot-limit", "frontend-cpu-bound"),
    ),
    Scenario(
        name="urgent-behind-full-slots",
        source="scripted",
        expected="priority-inversion",
        provoke=urgent_behind_full_slots,
        silent=("kv-head-of-line", "lora-slot-contention"),
    ),
    Scenario(
        name="no-aligned-chunk-left",
        source="scripted",
        expected="zero-token-not-budget",
        provoke=no_aligned_chunk_left,
        silent=("encoder-budget-zero-progress", "prefill-head-of-line"),
    ),
    Scenario(
        name="uneven-ranks",
        source="scripted",
        expected="dp-rank-imbalance",
        provoke=uneven_ranks,
        silent=("worker-hang", "admission-deadlock"),
    ),
)
