"""The pages of a simulated engine: what they count is what its log has."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.provoking.recording import RecordedLog, Recording, log_of
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst
from diagnose.diagnosis import diagnose
from diagnose.reading import read_row

NUM_REQUESTS = 40


@pytest.fixture(scope="module")
def storm() -> RecordedLog:
    """Forty requests, one of which hangs up, in a pool for a few."""
    random = Random(7)
    engine = Recording(settings(num_blocks=120), random)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 100), max_tokens=about(random, 200))

    engine.send(burst(random, call, count=NUM_REQUESTS - 1, at=0.1))
    engine.send([Call(at=0.5, max_tokens=1500, gone_after_seconds=2.0)])
    engine.run()
    engine.rest(10**10)
    return log_of(engine)


def test_the_counters_end_at_what_the_log_has(storm: RecordedLog) -> None:
    recorded = read_row(
        storm,
        """
        SELECT (SELECT count(*) FROM request_finishes) AS ended,
               (SELECT count(*) FROM preemptions) AS preemptions,
               (SELECT sum(num_output_tokens)::BIGINT FROM request_finishes) AS outputs
        """,
    )
    scraped = read_row(
        storm.scraped(),
        """
        SELECT sum(value) FILTER (metric = 'vllm:request_success_total') AS ended,
               sum(value) FILTER (metric = 'vllm:num_preemptions_total') AS preemptions,
               sum(value) FILTER (metric = 'vllm:generation_tokens_total') AS outputs
        FROM samples WHERE ts = (SELECT max(ts) FROM samples)
        """,
    )
    assert recorded["ended"] == NUM_REQUESTS
    assert recorded["preemptions"] > 0
    assert scraped == recorded


def test_nothing_but_samples_is_known(storm: RecordedLog) -> None:
    (engine,) = diagnose(storm.scraped()).engines
    assert engine.steps.num_rows == 0
    assert engine.metrics is not None
    assert engine.settings.max_num_seqs == 64


def test_flags_that_an_operator_knows_are_known_too(storm: RecordedLog) -> None:
    (engine,) = diagnose(storm.scraped(tensor_parallel_size=4)).engines
    assert engine.settings.setting("tensor_parallel_size") == 4
