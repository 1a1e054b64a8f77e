"""Spans of requests as the SDK makes them, held against the views of the same log."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from telemetry.exporters.attributes import LONGEST_TEXT
from telemetry.exporters.request_spans import MOST_CHILDREN
from telemetry.vocabulary import EventKind, FinishReason
from tests.telemetry.exporters.traced import (
    Traced,
    attribute,
    one_request,
    span_id,
    storm_log,
)
from tests.telemetry.log_builder import LogBuilder, records

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def storm() -> Traced:
    traced = Traced(storm_log())
    assert traced.export.work()
    return traced


def exported(log: LogBuilder) -> Traced:
    traced = Traced(log)
    assert traced.export.work()
    return traced


def test_the_spans_of_a_storm_equal_the_intervals_of_the_view(storm: Traced) -> None:
    children = sorted(
        (span.name, span.start_time, span.end_time)
        for span in storm.spans
        if span.name != "llm_request"
    )
    rows = records(storm.connection, "SELECT phase, start_ts, end_ts FROM request_intervals")
    assert children == sorted((r["phase"], r["start_ts"], r["end_ts"]) for r in rows)
    assert "recompute" in {name for name, _, _ in children}


def test_requests_last_from_arrival_to_end(storm: Traced) -> None:
    rows = records(storm.connection, "SELECT ts, finished_ts FROM requests")
    assert sorted((s.start_time, s.end_time) for s in storm.named("llm_request")) == sorted(
        (row["ts"], row["finished_ts"]) for row in rows
    )
    assert len(rows) == 6


def test_ids_are_those_of_the_view(storm: Traced) -> None:
    ids = {(format(s.context.trace_id, "032x"), span_id(s)) for s in storm.spans if s.context}
    rows = records(storm.connection, "SELECT trace_id, span_id FROM spans WHERE request >= 0")
    assert ids == {(row["trace_id"], row["span_id"]) for row in rows}


def test_attributes_of_every_span_hold_those_of_the_view(storm: Traced) -> None:
    rows = records(storm.connection, "FROM spans WHERE request >= 0")
    theirs = {row["span_id"]: json.loads(row["attributes"]) for row in rows}
    for span in storm.spans:
        own = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in (span.attributes or {}).items()
        }
        assert theirs[span_id(span)].items() <= own.items()


def test_a_preempted_span_says_why_at_what_price_and_for_whom(storm: Traced) -> None:
    rows = records(storm.connection, "FROM preemptions ORDER BY request, ts")
    told = sorted(storm.named("preempted"), key=lambda s: (s.context.trace_id, s.start_time or 0))
    prices = Counter(
        (s.start_time, attribute(s, "stepscope.num_computed_tokens_lost")) for s in told
    )
    assert prices == Counter((row["ts"], row["num_computed_tokens_lost"]) for row in rows)
    assert {attribute(s, "stepscope.cause") for s in told} == {"kv_full"}
    roots = {attribute(s, "stepscope.request"): span_id(s) for s in storm.named("llm_request")}
    for span in told:
        beneficiary = attribute(span, "stepscope.beneficiary")
        links = [format(link.context.span_id, "016x") for link in span.links]
        is_own = span.parent and format(span.parent.span_id, "016x") == roots[beneficiary]
        assert links == ([] if is_own else [roots[beneficiary]])


def test_a_load_is_a_child_that_says_what_was_loaded_and_how_it_ended() -> None:
    log = LogBuilder().arrived(0).step()
    log.event(EventKind.load_started, 0, connector="lmcache", num_tokens=48, tier=2)
    log.step().event(EventKind.load_failed, 0, connector="lmcache", num_invalid_blocks=1)
    log.step().admitted(0).step().first_token(0).step().finished(0)
    (load,) = exported(log).named("load")
    chosen = ("connector", "tier", "num_tokens", "outcome", "num_invalid_blocks")
    assert [attribute(load, f"stepscope.{name}") for name in chosen] == [
        "lmcache", "disk", 48, "failed", 1,
    ]  # fmt: skip


def test_a_load_that_outlives_its_request_ends_with_it_and_says_so() -> None:
    log = LogBuilder().arrived(0).step()
    log.event(EventKind.load_started, 0, connector="lmcache", num_tokens=48)
    traced = exported(log.step().finished(0, FinishReason.abort_client))
    (load,) = traced.named("load")
    assert load.end_time == traced.root().end_time
    assert attribute(load, "stepscope.is_open") is True


def test_a_callers_trace_is_continued() -> None:
    traced = exported(one_request(trace_id=TRACE, parent_span_id=PARENT))
    root = traced.root()
    assert root.parent is not None
    assert (root.parent.trace_id, root.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    assert {s.context.trace_id for s in traced.spans if s.context} == {int(TRACE, 16)}


@pytest.mark.parametrize(("is_sampled", "num"), [(True, 4), (None, 4), (False, 0)])
def test_a_caller_that_does_not_record_its_trace_is_followed(
    is_sampled: bool | None, num: int
) -> None:
    request = one_request(trace_id=TRACE, parent_span_id=PARENT, trace_sampled=is_sampled)
    assert len(exported(request).spans) == num


def test_a_trace_without_a_parent_span_is_kept_too() -> None:
    root = exported(one_request(trace_id=TRACE)).root()
    assert root.parent is None
    assert root.context is not None
    assert root.context.trace_id == int(TRACE, 16)


def test_children_hang_under_their_request() -> None:
    traced = exported(one_request())
    children = [s for s in traced.spans if s.name != "llm_request"]
    assert {format(s.parent.span_id, "016x") for s in children if s.parent} == {
        span_id(traced.root())
    }
    assert [s.name for s in children] == ["queued", "prefill", "decode"]


def test_a_request_is_the_work_of_a_server() -> None:
    root = exported(one_request(num_prompt_tokens=21)).root()
    assert root.kind is SpanKind.SERVER
    assert attribute(root, "gen_ai.usage.input_tokens") == 21


def test_an_engine_is_a_resource() -> None:
    resource = exported(one_request()).root().resource.attributes
    assert {
        "service.name": "stepscope",
        "service.instance.id": "fffffffffffffffb",
        "service.version": "0.1.0",
        "host.name": "here",
        "process.pid": 41,
        "stepscope.engine": "fffffffffffffffb",
        "stepscope.model": "tiny-llama",
        "stepscope.source": "stepscope",
    }.items() <= dict(resource).items()


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,host.name=h2")
    resource = exported(one_request()).root().resource.attributes
    chosen = ("service.name", "deployment.environment.name", "host.name")
    assert [resource[name] for name in chosen] == ["chat", "prod", "h2"]


def test_a_request_that_failed_has_the_status_of_an_error() -> None:
    log = LogBuilder().arrived(0).step().finished(0, FinishReason.error)
    assert exported(log).root().status.status_code is StatusCode.ERROR


def test_engines_are_exported_side_by_side() -> None:
    traced = Traced(one_request(), LogBuilder(engine=4).arrived(0).step().aborted(0))
    assert traced.export.work()
    instances = {s.resource.attributes["service.instance.id"] for s in traced.spans}
    assert instances == {"fffffffffffffffb", "0000000000000004"}


@pytest.mark.parametrize(("sampler", "num"), [("always_off", 0), ("parentbased_always_on", 4)])
def test_the_standard_sampler_decides(
    sampler: str, num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    assert len(exported(one_request()).spans) == num


def test_a_sample_keeps_whole_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    log = LogBuilder()
    for number in range(40):
        log.arrived(number).step().admitted(number).first_token(number).step().finished(number)
    traced = exported(log)
    sizes = Counter(s.context.trace_id for s in traced.spans if s.context)
    assert 5 < len(sizes) < 35
    assert set(sizes.values()) == {4}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("\x1b[31mred\r\n", "\\x1b[31mred\\r\\n"),
        ("evil\u202ename", "evil\\u202ename"),
        ("é 日本", "é 日本"),
        ("x" * 5_000, "x" * (LONGEST_TEXT - 1) + "…"),
    ],
)
def test_an_id_from_outside_is_shown_and_bounded(given: str, told: str) -> None:
    root = exported(one_request(request_id=given)).root()
    assert attribute(root, "gen_ai.response.id") == told


def test_a_number_that_the_wire_cannot_hold_becomes_text() -> None:
    step = (1 << 64) - 2
    log = LogBuilder().arrived(0, step=step).step().finished(0, step=step)
    (queued,) = exported(log).named("queued")
    assert attribute(queued, "stepscope.start_step") == str(step)


def test_a_request_evicted_without_end_has_a_bounded_number_of_spans() -> None:
    log = LogBuilder().arrived(0).step().admitted(0).first_token(0)
    for _ in range(MOST_CHILDREN):
        log.step().preempted(0, lost=1).step().resumed(0)
    traced = exported(log.step().finished(0))
    assert len(traced.spans) == MOST_CHILDREN + 1
    # queued, prefill, decode, then preempted and recompute each time
    left_out: Any = attribute(traced.root(), "stepscope.num_spans_left_out")
    assert left_out == 3 + 2 * MOST_CHILDREN - MOST_CHILDREN
