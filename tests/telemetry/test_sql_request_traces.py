"""Spans beside the requests that they are of: found by id, by vLLM's own id, by the trace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.telemetry.log_builder import MS, LogBuilder, connect, records

TRACE, SPAN, CALLER = "ab" * 16, "cd" * 8, "ef" * 8
SPAN_ENGINE = 77


def span(log: LogBuilder, **columns: Any) -> LogBuilder:
    """Adds a request's span that lasted the 100 ms until now."""
    row = {
        "engine": SPAN_ENGINE,
        "ts": log.now,
        "start_ts": log.now - 100 * MS,
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_span_id": CALLER,
        "name": "llm_request",
        "request_id": "cmpl-1",
        "prefill_ns": 20 * MS,
        "decode_ns": 60 * MS,
        **columns,
    }
    log.rows["engine_spans"].append(row)
    return log


def recorded(**arrival: Any) -> LogBuilder:
    """One request that arrived, was preempted for 40 ms and finished; 100 ms in all."""
    log = LogBuilder(engine=1).described().arrived(0, **arrival)
    log.advance(100 * MS)
    return log.finished(
        0, num_preemptions=1, queue_ns=10 * MS, prefill_ns=20 * MS, decode_ns=70 * MS,
        preempted_ns=40 * MS,
    )  # fmt: skip


def traces(*logs: LogBuilder) -> list[dict[str, Any]]:
    return records(connect(*logs), "FROM request_traces ORDER BY ts, span_id")


@pytest.mark.parametrize(
    ("arrival", "joined_by"),
    [
        ({"request_id": "cmpl-1"}, "request_id"),
        ({"request_id": "cmpl-1-0a1b2c3d"}, "internal_id"),
        ({"request_id": None, "trace_id": TRACE, "parent_span_id": CALLER}, "trace"),
        ({"request_id": "x", "trace_id": TRACE.upper(), "parent_span_id": CALLER}, "trace"),
    ],
)
def test_a_span_finds_its_request(arrival: dict[str, Any], joined_by: str) -> None:
    (row,) = traces(span(recorded(**arrival)))
    assert (row["engine"], row["request"], row["joined_by"]) == (1, 0, joined_by)
    assert row["span_engine"] == SPAN_ENGINE


@pytest.mark.parametrize(
    "arrival",
    [
        {"request_id": "cmpl-11"},
        {"request_id": "cmpl-1-0a1b2c3"},
        {"request_id": "cmpl-1-0A1B2C3D"},
        {"request_id": None, "trace_id": TRACE, "parent_span_id": "00" * 8},
        {"request_id": None, "trace_id": TRACE, "parent_span_id": None},
    ],
)
def test_a_request_of_another_name_is_not_its_own(arrival: dict[str, Any]) -> None:
    (row,) = traces(span(recorded(**arrival)))
    assert (row["engine"], row["request"], row["joined_by"]) == (SPAN_ENGINE, None, None)
    assert row["request_id"] == "cmpl-1"
    assert row["queue_ns"] is row["hidden_ratio"] is None


def test_what_the_span_hides_stands_beside_it() -> None:
    (row,) = traces(span(recorded(request_id="cmpl-1"), queue_ns=9 * MS, e2e_ns=100 * MS))
    assert (row["span_queue_ns"], row["queue_ns"]) == (9 * MS, 10 * MS)
    assert (row["span_decode_ns"], row["decode_ns"]) == (60 * MS, 70 * MS)
    assert (row["span_e2e_ns"], row["e2e_ns"]) == (100 * MS, 100 * MS)
    assert (row["num_preemptions"], row["preempted_ns"]) == (1, 40 * MS)
    assert row["hidden_ratio"] == 0.5


def test_an_id_counts_for_more_than_a_trace() -> None:
    log = recorded(request_id="other", trace_id=TRACE, parent_span_id=CALLER)
    other = LogBuilder(engine=2).arrived(5, request_id="cmpl-1")
    (row,) = traces(span(log), other)
    assert (row["engine"], row["request"], row["joined_by"]) == (2, 5, "request_id")


def test_of_two_requests_of_one_name_the_nearest_is_meant() -> None:
    log = LogBuilder(engine=1).arrived(0, request_id="cmpl-1").advance(30_000 * MS)
    log.arrived(1, request_id="cmpl-1").advance(100 * MS)
    (row,) = traces(span(log))
    assert row["request"] == 1


def test_a_name_that_came_again_much_later_is_another_request() -> None:
    log = LogBuilder(engine=1).arrived(0, request_id="cmpl-1").advance(3_600_000 * MS)
    (row,) = traces(span(log))
    assert row["request"] is None


def test_a_span_that_came_twice_is_one_row() -> None:
    log = recorded(request_id="cmpl-1")
    assert len(traces(span(span(log)))) == 1
    assert len(traces(span(log, span_id="00" * 7 + "01"))) == 2


def test_spans_of_the_start_are_no_requests() -> None:
    assert traces(span(recorded(request_id="cmpl-1"), name="Load model")) == []


def test_a_span_without_a_start_is_joined_by_its_end() -> None:
    (row,) = traces(span(recorded(request_id="cmpl-1"), start_ts=None))
    assert row["request"] == 0
