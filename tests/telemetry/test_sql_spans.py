"""Spans of requests and steps: ids, parents, times, attributes."""

from __future__ import annotations

import json
from typing import Any

from telemetry.vocabulary import StopReason
from tests.telemetry.log_builder import LogBuilder, connect, records

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def a_life(**arrival: Any) -> LogBuilder:
    log = LogBuilder(engine=2**64 - 2).described().arrived(3, **arrival).step().step().admitted(3)
    log.step().first_token(3).step().preempted(3).step().resumed(3).step().caught_up(3)
    return log.step().finished(3, num_output_tokens=9)


def spans(log: LogBuilder, where: str = "true") -> list[dict[str, Any]]:
    return records(connect(log), f"FROM spans WHERE {where} ORDER BY start_ns, end_ns DESC")


def test_a_request_is_a_root_with_a_child_for_each_interval() -> None:
    connection = connect(a_life())
    rows = records(connection, "FROM spans WHERE request = 3 ORDER BY start_ns, end_ns DESC")
    root, *children = rows
    assert root["name"] == "llm_request"
    intervals = records(connection, "FROM request_intervals ORDER BY start_ts, end_ts")
    assert [(c["name"], c["start_ns"], c["end_ns"]) for c in children] == [
        (i["phase"], i["start_ts"], i["end_ts"]) for i in intervals
    ]
    assert {child["parent_span_id"] for child in children} == {root["span_id"]}
    assert {row["trace_id"] for row in rows} == {root["trace_id"]}


def test_a_callers_trace_is_continued() -> None:
    root, *children = spans(a_life(trace_id=TRACE, parent_span_id=PARENT), "request = 3")
    assert (root["trace_id"], root["parent_span_id"]) == (TRACE, PARENT)
    assert {child["trace_id"] for child in children} == {TRACE}


def test_without_a_caller_the_root_has_no_parent() -> None:
    root, *_ = spans(a_life(parent_span_id=PARENT), "request = 3")
    assert root["parent_span_id"] is None
    assert len(root["trace_id"]) == 32
    assert int(root["trace_id"], 16) > 0


def test_a_callers_trace_that_is_no_trace_id_is_not_continued() -> None:
    for trace in ("0" * 32, "xyz", TRACE + "0", "'; DROP TABLE steps"):
        root, *_ = spans(a_life(trace_id=trace, parent_span_id=PARENT), "request = 3")
        assert root["trace_id"] != trace
        assert root["parent_span_id"] is None


def test_ids_are_unique_and_the_same_every_time() -> None:
    steps = LogBuilder().step(schedule_ns=1, forward_ns=2).step(schedule_ns=1, forward_ns=2)
    ids = [row["span_id"] for log in (a_life(), steps) for row in spans(log)]
    again = [row["span_id"] for log in (a_life(), steps) for row in spans(log)]
    assert ids == again
    assert len(set(ids)) == len(ids)
    assert all(len(span_id) == 16 for span_id in ids)


def test_attributes_carry_the_conventional_names_and_only_what_is_known() -> None:
    root, *_ = spans(a_life(max_tokens=12, num_prompt_tokens=20), "request = 3")
    attributes = json.loads(root["attributes"])
    assert attributes["gen_ai.request.model"] == "tiny-llama"
    assert attributes["gen_ai.usage.input_tokens"] == 20
    assert attributes["gen_ai.usage.output_tokens"] == 9
    assert attributes["gen_ai.request.max_tokens"] == 12
    assert attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert attributes["stepscope.engine"] == "fffffffffffffffe"
    assert "stepscope.queue_ns" not in attributes
    assert None not in attributes.values()


def test_a_request_that_runs_has_an_open_span() -> None:
    root, *children = spans(LogBuilder().arrived(0).step(), "request = 0")
    assert (root["end_ns"], [child["end_ns"] for child in children]) == (None, [None])


def test_the_phases_of_a_step_lie_end_to_end() -> None:
    log = LogBuilder().step(
        schedule_ns=100, inputs_ns=20, forward_ns=500, sample_ns=7, update_ns=30,
        num_scheduled_tokens=5, stop_reason=StopReason.max_num_seqs,
    )  # fmt: skip
    step, *phases = spans(log)
    begin = log.now
    assert (step["name"], step["start_ns"], step["end_ns"]) == (
        "step",
        begin,
        log.rows["steps"][0]["updated_ts"],
    )
    assert [(p["name"], p["start_ns"] - begin, p["end_ns"] - begin) for p in phases] == [
        ("schedule", 0, 100),
        ("inputs", 100, 120),
        ("forward", 120, 620),
        ("sample", 620, 627),
        ("update", 627, 657),
    ]
    assert {phase["parent_span_id"] for phase in phases} == {step["span_id"]}
    assert json.loads(step["attributes"])["stepscope.stop_reason"] == "max_num_seqs"


def test_a_step_that_was_not_updated_ends_with_its_last_phase() -> None:
    log = LogBuilder().step(schedule_ns=100, forward_ns=500, updated_ts=None)
    assert spans(log)[0]["end_ns"] == log.now + 600
