"""`metric_intervals`: one name whatever the source spelled, increases, resets, what is absent."""

from __future__ import annotations

from typing import Any

from tests.diagnose.scrapes import NS, calm, sample, scraped
from tests.telemetry.log_builder import START, LogBuilder, connect, records


def intervals(*logs: LogBuilder) -> list[dict[str, Any]]:
    return records(connect(*logs), "FROM metric_intervals ORDER BY engine, source, ts")


def test_a_counter_becomes_its_increase() -> None:
    rows = intervals(scraped(preempt=[5, 7, 7]))
    assert [row["num_preemptions"] for row in rows] == [None, 2, 0]


def test_the_first_scrape_has_no_interval() -> None:
    first, second = intervals(scraped(running=[1, 2], interval_s=10))
    assert (first["previous_ts"], first["interval_ns"]) == (None, None)
    assert (second["previous_ts"], second["interval_ns"]) == (first["ts"], 10 * NS)


def test_a_counter_that_fell_is_a_reset_and_no_increase() -> None:
    rows = intervals(scraped(preempt=[410, 410, 0, 3], finished=[9, 10, 11, 12]))
    assert [row["is_reset"] for row in rows] == [False, False, True, False]
    assert [row["num_preemptions"] for row in rows] == [None, 0, None, 3]
    assert rows[2]["num_finished"] is None  # it rose, but over a restart nothing is known


def test_another_process_is_a_reset_though_no_counter_fell() -> None:
    rows = intervals(scraped(preempt=[1, 2, 3], started=[100.0, 100.0, 200.0]))
    assert [row["is_reset"] for row in rows] == [False, False, True]
    assert rows[2]["num_preemptions"] is None


def test_what_no_page_has_is_null_and_never_0() -> None:
    (row,) = intervals(scraped(running=[3]))
    assert row["num_running"] == 3
    absent = ("num_waiting", "kv_cache_usage_ratio", "num_preemptions", "num_waiting_deferred")
    assert [row[name] for name in absent] == [None] * 4


def test_a_counter_that_one_page_lacks_has_no_increase_on_either_side() -> None:
    rows = intervals(scraped(running=[1, 1, 1, 1], preempt=[1, None, 3, 4]))
    assert [row["num_preemptions"] for row in rows] == [None, None, None, 1]


def test_reasons_of_waiting_are_columns_of_their_own() -> None:
    (row,) = intervals(scraped(waiting=[5], capacity=[2], deferred=[3]))
    assert (row["num_waiting"], row["num_waiting_capacity"], row["num_waiting_deferred"]) == (
        5,
        2,
        3,
    )


def test_samples_that_differ_in_other_labels_are_added() -> None:
    rows = intervals(scraped(finished=[2, 5], aborted=[1, 1]))
    assert [row["num_finished"] for row in rows] == [None, 3]


def test_two_spellings_of_one_number_on_a_page_count_once() -> None:
    log = LogBuilder()
    for value in (10, 14):
        sample(log, "ray_vllm_num_preemptions_total", value)
        sample(log, "ray_vllm_num_preemptions", value)
        log.advance(NS)
    assert [row["num_preemptions"] for row in intervals(log)] == [None, 4]


def test_old_names_and_sglang_s_have_the_same_column() -> None:
    log = LogBuilder()
    sample(log, "vllm:gpu_cache_usage_perc", 0.5)
    other = sample(LogBuilder(2), "sglang:token_usage", 0.25)
    rows = intervals(log, other)
    assert [row["kv_cache_usage_ratio"] for row in rows] == [0.5, 0.25]


def test_engines_of_a_page_are_apart() -> None:
    rows = intervals(scraped(1, preempt=[1, 2]), scraped(2, preempt=[10, 30]))
    assert [row["num_preemptions"] for row in rows] == [None, 1, None, 20]


def test_a_log_and_a_scrape_of_one_engine_are_rows_of_their_own() -> None:
    log = scraped(running=[4])
    sample(log, "log:running", 4, source="vllm-log")
    assert [row["source"] for row in intervals(log)] == ["prometheus", "vllm-log"]


def test_a_rate_of_a_line_becomes_tokens_with_the_time_between_lines() -> None:
    log = LogBuilder()
    for _ in range(3):
        sample(log, "log:avg_generation_throughput", 50.5, source="vllm-log")
        log.advance(10 * NS)
    assert [row["num_generation_tokens"] for row in intervals(log)] == [None, 505, 505]


def test_a_rate_after_a_pause_covers_no_more_than_the_usual_time() -> None:
    log = LogBuilder()
    for pause in (10, 10, 600, 10):
        sample(log, "log:avg_prompt_throughput", 100, source="vllm-log")
        log.advance(pause * NS)
    assert [row["num_prompt_tokens"] for row in intervals(log)] == [None, 1000, 1000, 1000]


def test_a_value_that_is_no_number_is_absent() -> None:
    log = LogBuilder()
    sample(log, "vllm:kv_cache_usage_perc", float("nan"))
    sample(log, "vllm:num_requests_running", 1)
    assert intervals(log)[0]["kv_cache_usage_ratio"] is None


def test_a_value_beyond_all_bounds_is_absent_and_breaks_nothing() -> None:
    log = sample(LogBuilder(), "vllm:num_requests_running", 1e300)
    sample(log, "vllm:num_requests_waiting", 2)
    (row,) = intervals(log)
    assert (row["num_running"], row["num_waiting"]) == (None, 2)


def test_names_from_outside_are_no_sql() -> None:
    log = sample(LogBuilder(), "x'); DROP TABLE samples; --", 1, {"le": "'\"{"})
    sample(log, "vllm:num_requests_running", 1)
    assert len(intervals(log)) == 1


def test_a_page_without_a_known_name_is_no_row() -> None:
    assert intervals(sample(LogBuilder(), "go_goroutines", 7)) == []


def test_the_counters_themselves_are_there_too() -> None:
    rows = intervals(calm(3, gen_tps=[10, 10, 10]))
    assert [row["num_generation_tokens_total"] for row in rows] == [100, 200, 300]


def test_a_stretch_has_the_rows_of_the_view_and_knows_the_scrape_before_it() -> None:
    connection = connect(calm(6), scraped(2, running=[1, 2, 3]))
    start, end = START + 20 * NS, START + 40 * NS
    within = records(connection, f"FROM metric_intervals WHERE ts BETWEEN {start} AND {end}")
    stretch = records(connection, f"FROM metric_intervals_between({start}, {end})")
    assert len(stretch) == 4
    assert sorted(stretch, key=str) == sorted(within, key=str)
    assert all(row["previous_ts"] == row["ts"] - 10 * NS for row in stretch)


def test_the_scrape_before_a_stretch_is_not_looked_for_for_ever() -> None:
    connection = connect(scraped(preempt=[1, 5], interval_s=7200))
    (row,) = records(connection, f"FROM metric_intervals_between({START + 7200 * NS}, NULL)")
    assert (row["previous_ts"], row["num_preemptions"]) == (None, None)
