"""Spans of steps: a sample, the same each time, linked to the requests that ran in them."""

from __future__ import annotations

import json

import pytest

from telemetry.exporters.step_spans import BATCH, MOST_LINKS
from telemetry.vocabulary import FinishReason
from tests.telemetry.exporters.traced import Traced, attribute, span_id, storm_log
from tests.telemetry.log_builder import LogBuilder, records


def steps_of(traced: Traced) -> dict[int, list[str]]:
    """Returns the requests' spans that each exported step links to."""
    return {
        attribute(span, "stepscope.step"): sorted(
            format(link.context.span_id, "016x") for link in span.links
        )
        for span in traced.named("step")
    }


@pytest.fixture(scope="module")
def storm() -> Traced:
    traced = Traced(storm_log(), step_ratio=1.0)
    assert traced.export.work()
    return traced


def test_steps_are_those_of_the_view_to_the_nanosecond(storm: Traced) -> None:
    rows = records(storm.connection, "FROM step_spans")
    told = {
        (span_id(s), s.name, s.start_time, s.end_time)
        for s in storm.spans
        if s.context and attribute(s, "stepscope.step") is not None
    }
    assert told == {(r["span_id"], r["name"], r["start_ns"], r["end_ns"]) for r in rows}
    assert len(storm.named("step")) > BATCH / 4


def test_a_step_links_to_the_requests_that_it_gave_tokens(storm: Traced) -> None:
    rows = records(
        storm.connection,
        "SELECT step, list_sort(list(request_span_id(engine, request))) AS ran FROM step_requests "
        "WHERE num_scheduled_tokens > 0 GROUP BY step",
    )
    told = steps_of(storm)
    assert {row["step"]: row["ran"] for row in rows} == {
        step: links for step, links in told.items() if links
    }


def test_a_step_is_a_trace_of_its_own(storm: Traced) -> None:
    for span in storm.named("step"):
        assert span.parent is None
    traces = {span.context.trace_id for span in storm.named("step") if span.context}
    assert len(traces) == len(storm.named("step"))


def test_no_step_is_exported_unless_asked_for() -> None:
    traced = Traced(storm_log())
    assert traced.export.work()
    assert traced.named("step") == []


def test_a_sample_is_the_same_each_time() -> None:
    log = LogBuilder()
    for _ in range(300):
        log.step()
    halves = [Traced(log, step_ratio=0.5) for _ in range(2)]
    for traced in halves:
        assert traced.export.work()
    assert steps_of(halves[0]) == steps_of(halves[1])
    assert 100 < len(steps_of(halves[0])) < 200


def test_steps_are_exported_once_over_a_restart() -> None:
    log = LogBuilder()
    for _ in range(3 * BATCH):
        log.step()
    traced = Traced(log, step_ratio=1.0)
    assert traced.export.work()
    traced.save()
    traced.restart()
    traced.becomes(log.step())
    assert traced.export.work()
    told = [attribute(span, "stepscope.step") for span in traced.named("step")]
    assert told == list(range(3 * BATCH + 1))


def test_requests_that_ran_before_a_restart_are_linked() -> None:
    log = LogBuilder().arrived(0).step().admitted(0)
    traced = Traced(log, step_ratio=1.0)
    assert traced.export.work()
    traced.save()
    traced.restart()
    traced.becomes(log.step())
    assert traced.export.work()
    assert [len(links) for links in steps_of(traced).values()] == [1, 1]


def test_the_step_that_ends_a_request_is_its_own_and_an_abort_happens_before_one() -> None:
    log = LogBuilder().arrived(0).arrived(1).step().admitted(0).admitted(1)
    log.step().finished(0, FinishReason.length).aborted(1).step()
    traced = Traced(log, step_ratio=1.0)
    assert traced.export.work()
    assert [len(links) for links in steps_of(traced).values()] == [2, 2, 0]


def test_a_step_has_a_bounded_number_of_links_and_counts_the_rest() -> None:
    log = LogBuilder()
    for number in range(MOST_LINKS + 5):
        log.arrived(number)
    log.step()
    for number in range(MOST_LINKS + 5):
        log.admitted(number)
    traced = Traced(log, step_ratio=1.0)
    assert traced.export.work()
    (step,) = traced.named("step")
    assert len(step.links) == MOST_LINKS
    assert attribute(step, "stepscope.num_links_left_out") == 5


def test_attributes_are_those_of_the_view(storm: Traced) -> None:
    rows = records(storm.connection, "FROM step_spans WHERE name = 'step'")
    theirs = {row["span_id"]: json.loads(row["attributes"]) for row in rows}
    for span in storm.named("step"):
        assert dict(span.attributes or {}) == theirs[span_id(span)]
