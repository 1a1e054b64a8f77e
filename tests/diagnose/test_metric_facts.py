"""What scrapes say, read once: stretches, sources, spelling, and what is absent."""

from __future__ import annotations

import numpy as np

from diagnose.reading import Scope
from diagnose.scrapes.metric_facts import MetricFacts, is_recorded, read_metric_facts
from diagnose.window import choose_window, engines_in
from tests.diagnose.logs import described, log_of, steps
from tests.diagnose.scrapes import NS, calm, sample, scraped, steady
from tests.telemetry.log_builder import START, LogBuilder

ALL = (START - NS, START + 10_000 * NS)


def facts(log: LogBuilder, source: str | None = "vllm") -> MetricFacts:
    return read_metric_facts(log_of(log), Scope(log.engine, *ALL), source)


def mask(*values: int) -> np.ndarray:
    return np.array(values, dtype=bool)


def test_a_stretch_is_broken_by_a_state_and_by_an_interval() -> None:
    read = facts(calm(8))
    states = mask(1, 1, 1, 0, 1, 1, 1, 1)
    quiet = mask(0, 1, 1, 1, 0, 1, 0, 1)
    found = [(each.first, each.last) for each in read.stretches(states, quiet)]
    assert found == [(0, 2), (4, 5), (6, 7)]


def test_a_stretch_that_lasts_goes_before_a_longer_one_that_ended() -> None:
    read = facts(calm(8))
    found = read.longest(mask(1, 1, 1, 1, 0, 1, 1, 1))
    assert found is not None
    assert (found.first, found.is_last, found.duration_ns) == (5, True, 20 * NS)


def test_too_short_a_stretch_is_none() -> None:
    read = facts(calm(8))
    assert read.longest(mask(1, 1, 0, 1, 1, 0, 1, 1)) is None
    assert read.longest(mask(1, 1, 1, 1, 1, 1, 1, 1), min_ns=71 * NS) is None


def test_what_is_absent_is_none_and_not_0() -> None:
    read = facts(scraped(running=steady(4, 1)))
    assert read["num_preemptions"].sum is None
    assert read["kv_cache_usage_ratio"].max is None
    assert read.num_tokens.is_measured is False
    assert read.missing("num_running", "num_preemptions") == ("vllm:num_preemptions_total",)


def test_a_missing_metric_is_spelled_as_the_engine_would() -> None:
    read = facts(scraped(running=steady(4, 1)), "sglang")
    assert read.missing("kv_cache_usage_ratio") == ("sglang:token_usage",)
    assert read.missing("num_waiting_deferred") == (
        'vllm:num_requests_waiting_by_reason{reason="deferred"}',
    )


def test_scrapes_go_before_lines_and_nothing_is_added_up() -> None:
    log = calm(3)
    for row in list(log.rows["samples"]):
        if row["metric"] == "vllm:num_requests_running":
            log.now = row["ts"]
            sample(log, "log:running", 8, source="vllm-log")
    read = facts(log)
    assert (read.source, read.num_scrapes, read["num_running"].max) == ("prometheus", 3, 8)


def test_a_source_that_nobody_knows_is_left_alone() -> None:
    log = LogBuilder()
    sample(log, "vllm:num_requests_running", 1, source="'; DROP TABLE samples; --")
    assert facts(log).source is None


def test_a_gap_between_scrapes_is_counted_and_said() -> None:
    log = calm(4)
    for row in log.rows["samples"]:
        row["ts"] += 600 * NS if row["ts"] >= START + 30 * NS else 0
    read = facts(log)
    assert read.num_gaps == 1
    assert "1 gap between scrapes" in read.caveats


def test_an_engine_with_steps_is_judged_by_them() -> None:
    log = steps(described(), 30)
    assert is_recorded(log_of(log), Scope(1, *ALL))
    assert not is_recorded(log_of(calm()), Scope(1, *ALL))


def test_the_window_of_scrapes_begins_with_the_first_and_not_with_the_process() -> None:
    log = calm(settings={"started_ts": START - 3600 * NS})
    window = choose_window(log_of(log))
    assert (window.start_ts, window.end_ts) == (START, START + 70 * NS)
    assert engines_in(log_of(log), window) == [1]


def test_an_engine_of_which_only_spans_are_known_is_in_the_window() -> None:
    log = LogBuilder()
    log._add("engine_spans", {"ts": log.now + NS, "start_ts": log.now, "name": "llm_request"})
    window = choose_window(log_of(log))
    assert window.duration_ns == NS
