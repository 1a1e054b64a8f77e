"""`metric_buckets` and `metric_latencies`: what histograms say, with their buckets' bounds."""

from __future__ import annotations

from typing import Any

from tests.diagnose.scrapes import NS, histogram
from tests.telemetry.log_builder import LogBuilder, connect, records

TTFT = "vllm:time_to_first_token_seconds"


def pages(*upto: dict[str, float], family: str = TTFT) -> LogBuilder:
    log = LogBuilder()
    for page in upto:
        histogram(log, family, page)
        log.advance(NS)
    return log


def latencies(log: LogBuilder) -> dict[int, dict[str, Any]]:
    rows = records(connect(log), "FROM metric_latencies ORDER BY ts, percentile")
    return {row["percentile"]: row for row in rows}


def test_buckets_are_what_fell_between_two_bounds_since_the_page_before() -> None:
    log = pages({"0.1": 5, "1.0": 6, "+Inf": 6}, {"0.1": 7, "1.0": 10, "+Inf": 11})
    rows = records(connect(log), "FROM metric_buckets WHERE previous_ts IS NOT NULL ORDER BY ALL")
    found = [(row["lower_bound"], row["upper_bound"], row["num_observations"]) for row in rows]
    assert found == [(0.0, 0.1, 2), (0.1, 1.0, 2), (1.0, float("inf"), 1)]


def test_a_counter_that_fell_leaves_no_number() -> None:
    log = pages({"0.1": 5, "+Inf": 9}, {"0.1": 6, "+Inf": 7})
    rows = records(connect(log), "FROM metric_buckets WHERE previous_ts IS NOT NULL")
    assert {row["num_observations"] for row in rows} == {None}


def test_a_percentile_lies_between_the_bounds_of_its_bucket() -> None:
    log = pages({"0.1": 0, "0.2": 0, "+Inf": 0}, {"0.1": 40, "0.2": 100, "+Inf": 100})
    found = latencies(log)
    assert (found[50]["low_ns"], found[50]["high_ns"]) == (100_000_000, 200_000_000)
    assert found[50]["low_ns"] < found[50]["estimate_ns"] < found[50]["high_ns"]
    assert found[50]["num_observations"] == 100


def test_the_last_bucket_has_no_end_and_no_estimate() -> None:
    log = pages({"0.1": 0, "+Inf": 0}, {"0.1": 0, "+Inf": 10})
    assert (latencies(log)[99]["high_ns"], latencies(log)[99]["estimate_ns"]) == (None, None)
    assert latencies(log)[99]["low_ns"] == 100_000_000


def test_without_observations_there_is_no_row() -> None:
    assert latencies(pages({"0.1": 3, "+Inf": 3}, {"0.1": 3, "+Inf": 3})) == {}


def test_what_is_no_time_is_no_latency() -> None:
    family = "vllm:request_num_preemptions"
    log = pages({"1.0": 0, "+Inf": 0}, {"1.0": 4, "+Inf": 9}, family=family)
    assert latencies(log) == {}
    rows = records(connect(log), "SELECT DISTINCT histogram FROM metric_buckets")
    assert rows == [{"histogram": "request_preemptions"}]
