from __future__ import annotations

from bisect import bisect_left
from itertools import count

from engine.core import EngineCore, NewRequest
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from engine.stats import Histogram, StatsSnapshot
from telemetry.recorder import ListRecorder
from telemetry.records import RequestFinished
from telemetry.vocabulary import FinishReason
from tests.engine.builders import config


def run(num_requests: int, *, num_usable_blocks: int) -> tuple[StatsSnapshot, ListRecorder]:
    """Runs requests of 8 prompt and 12 output tokens to their ends."""
    recorder = ListRecorder()
    core = EngineCore(
        config(num_usable_blocks=num_usable_blocks),
        ScriptedRunner(lambda request_id, n: n),
        recorder=recorder,
        clock=count(0, 1_000_000).__next__,
        model_name="scripted",
    )
    for index in range(num_requests):
        prompt = range(100 * index, 100 * index + 8)
        sampling = SamplingParams(max_tokens=12)
        core.add_request(
            NewRequest(request_id=f"r{index}", prompt_token_ids=prompt, sampling=sampling)
        )
    while core.has_work():
        core.step()
    return core.snapshot(), recorder


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([2, 2, 1], 14.0)


def test_a_snapshot_is_not_changed_by_what_comes_after() -> None:
    histogram = Histogram((1.0,))
    copy = histogram.copy()
    histogram.observe(0.5)
    assert copy.counts == [0, 0]


def test_tokens_are_counted_once_however_often_they_are_computed() -> None:
    stats, _ = run(8, num_usable_blocks=12)
    assert stats.num_preemptions > 0
    assert stats.num_prompt_tokens == 8 * 8
    assert stats.num_generation_tokens == 8 * 12
    assert stats.num_finished["length"] == 8
    assert stats.num_finished["abort_client"] == 0


def test_every_token_but_the_first_has_one_gap_before_it() -> None:
    stats, recorder = run(8, num_usable_blocks=12)
    gaps = stats.histograms["inter_token_latency_seconds"]
    assert sum(gaps.counts) == 8 * 11
    assert sum(stats.histograms["time_to_first_token_seconds"].counts) == 8
    decode_ns = sum(e.decode_ns or 0 for e in recorder.events if isinstance(e, RequestFinished))
    # The same gaps: the page reads the clock a little later in the step than the record does.
    assert abs(gaps.total * 1e9 / decode_ns - 1) < 0.1


def test_latencies_of_the_page_are_those_of_the_record() -> None:
    stats, recorder = run(6, num_usable_blocks=100)
    queue = stats.histograms["request_queue_time_seconds"]
    values = [
        event.queue_ns / 1e9
        for event in recorder.events
        if isinstance(event, RequestFinished) and event.queue_ns is not None
    ]
    counts = [0] * len(queue.counts)
    for value in values:
        counts[bisect_left(queue.bounds, value)] += 1
    assert queue.counts == counts
    assert abs(queue.total - sum(values)) < 1e-6


def test_at_rest_nothing_runs_waits_or_holds_blocks() -> None:
    stats, _ = run(3, num_usable_blocks=100)
    gauges = (stats.num_running, stats.num_waiting_capacity, stats.num_waiting_deferred)
    assert gauges == (0, 0, 0)
    assert stats.kv_cache_usage_ratio == 0


def test_an_aborted_request_is_counted_and_not_timed() -> None:
    core = EngineCore(
        config(),
        ScriptedRunner(lambda request_id, n: n),
        recorder=ListRecorder(),
        clock=count(0, 1_000_000).__next__,
        model_name="scripted",
    )
    core.add_request(
        NewRequest(request_id="a", prompt_token_ids=[1], sampling=SamplingParams(max_tokens=9))
    )
    core.step()
    core.abort(["a"], FinishReason.abort_client)
    stats = core.snapshot()
    assert stats.num_finished["abort_client"] == 1
    assert sum(stats.histograms["e2e_request_latency_seconds"].counts) == 0
