"""What slows answers down: prompts beside them, and drafts that are not worth it."""

from __future__ import annotations

from benchmarks.provoking.pace import Pace
from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst, poisson
from diagnose.reading import QueryLog
from engine.config import SpeculationConfig


def cold_prompts_beside_answers(attempt: Attempt) -> QueryLog:
    """Answers run at ease, and every few seconds a cold prompt of many chunks runs beside them."""
    random = attempt.random
    budget = random.choice((2048, 4096))
    config = settings(num_blocks=12000, max_num_batched_tokens=budget, max_model_len=65536)
    pace = Pace(step_ms=18, prefill_us=random.uniform(60, 90))
    engine = Recording(config, random, pace=pace)

    def answer(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 80), max_tokens=about(random, 1400))

    engine.send(burst(random, answer, count=round(9 * attempt.load), at=0.2))
    for start in range(5, 45, 8):
        tokens = about(random, 34000 * attempt.load**0.5, 0.15)
        at = start + random.uniform(-1, 1)
        engine.send([Call(at=at, num_prompt_tokens=tokens, max_tokens=10)])
    engine.run(until=50)
    return log_of(engine)


def _speculating(
    attempt: Attempt, *, rate: float, accepted: float, pace: Pace, off_until: float | None = None
) -> QueryLog:
    """Requests with drafts of which a given share is right; without any until some moment."""
    random = attempt.random
    num_drafts = random.randint(3, 5)
    config = settings(
        num_blocks=4000,
        max_num_seqs=128,
        speculation=SpeculationConfig(method="ngram", num_speculative_tokens=num_drafts),
    )

    def num_accepted(request_id: str, num: int) -> int:
        right = 0
        while right < num and random.random() < accepted:
            right += 1
        return right

    engine = Recording(config, random, pace=pace, num_accepted=num_accepted)
    if off_until is not None:
        engine.runner.num_drafts = 0
        engine.at(off_until, lambda: setattr(engine.runner, "num_drafts", num_drafts))

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 100), max_tokens=about(random, 160))

    engine.send(poisson(random, call, rate=rate * attempt.load, start=0, end=50))
    engine.run()
    return log_of(engine)


def drafts_that_are_wrong(attempt: Attempt) -> QueryLog:
    """Hardly any draft is right, and there never were steps without."""
    accepted = attempt.random.uniform(0.01, 0.08)
    pace = Pace(draft_ms=3, draft_us=60)
    return _speculating(attempt, rate=2.0, accepted=accepted, pace=pace)


def drafts_that_cost_more(attempt: Attempt) -> QueryLog:
    """A third of the drafts is right, but in large batches each costs more than it brings."""
    random = attempt.random
    accepted = random.uniform(0.3, 0.4)
    pace = Pace(step_ms=14, decode_us=500, draft_ms=9, draft_us=random.uniform(300, 400))
    return _speculating(attempt, rate=1.8, accepted=accepted, pace=pace, off_until=20)


def drafts_that_pay(attempt: Attempt) -> QueryLog:
    """Few drafts are right, and output is faster all the same: they cost next to nothing."""
    pace = Pace(draft_ms=0.3, draft_us=5)
    accepted = attempt.random.uniform(0.3, 0.4)
    return _speculating(attempt, rate=1.2, accepted=accepted, pace=pace, off_until=20)


SCENARIOS = (
    Scenario(
        name="cold-prompts-beside-answers",
        source="scripted",
        expected="prefill-stalls-decode",
        provoke=cold_prompts_beside_answers,
        silent=("kv-preemption-pressure", "spec-decode-unprofitable", "kv-load-failure"),
    ),
    *(
        Scenario(
            name=run.__name__.replace("_", "-"),
            source="scripted",
            expected="spec-decode-unprofitable",
            provoke=run,
            silent=("prefill-stalls-decode",),
        )
        for run in (drafts_that_are_wrong, drafts_that_cost_more)
    ),
    Scenario(
        name="drafts-that-pay",
        source="scripted",
        expected=None,
        provoke=drafts_that_pay,
        silent=("spec-decode-unprofitable",),
    ),
)
