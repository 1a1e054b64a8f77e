"""What is kept of a span: vLLM's own, by an allow-list, with nothing made up."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from telemetry.sources.otlp.decoding import from_protobuf
from telemetry.sources.otlp.spans import Taken, take_apart
from telemetry.sources.rows import Row
from tests.telemetry.sources.otlp.builders import CAPTURED, export

HOUR_NS = 3600 * 10**9


def taken_of(**changes: Any) -> Taken:
    now = time.time_ns()
    return take_apart(export(**changes), earliest_ts=now - HOUR_NS, latest_ts=now + HOUR_NS)


def row_of(**changes: Any) -> Row:
    (span,) = taken_of(**changes).spans
    return span.row


def captured(name: str) -> Taken:
    message = from_protobuf((CAPTURED / name).read_bytes())
    return take_apart(message, earliest_ts=0, latest_ts=1 << 62)


def test_a_request_of_a_real_vllm() -> None:
    row = captured("export_0006_grpc.pb").spans[0].row
    known = {key: value for key, value in row.items() if value is not None}
    assert known.pop("engine") > 0
    assert json.loads(known.pop("attributes")) == {
        "gen_ai.latency.time_in_model_inference": 0.2398664809999218,
        "gen_ai.request.n": 1,
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.top_p": 1.0,
    }
    assert known == {
        "ts": 1795953165982833906,
        "start_ts": 1795953165738506496,
        "trace_id": "4a207a5f01b61f9932388d28a5b3998b",
        "span_id": "83bf749d06286421",
        "parent_span_id": "4be649d89cf8a191",
        "name": "llm_request",
        "service": "unknown_service:python3",
        "request_id": "cmpl-load-8-0-0",
        "num_prompt_tokens": 300,
        "num_output_tokens": 40,
        "max_tokens": 40,
        "queue_ns": 31_437,
        "ttft_ns": 34_670_830,
        "prefill_ns": 30_414_115,
        "decode_ns": 209_452_366,
        "e2e_ns": 243_732_691,
    }


def test_the_start_of_a_real_vllm_says_which_process_and_function() -> None:
    spans = captured("export_0001_grpc.pb").spans
    assert [span.row["name"] for span in spans] == [
        "Executor init",
        "Prepare model",
        "EngineCoreProc init",
    ]
    assert json.loads(spans[0].row["attributes"]) == {
        "code.function": "Executor.__init__",
        "code.namespace": "vllm.v1.executor.abstract",
        "vllm.process_kind": "engine_core",
        "vllm.process_name": "EngineCore",
    }


def test_text_of_a_request_is_never_kept() -> None:
    names = ("gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "url.full")
    secrets = dict.fromkeys((*names, "gen_ai.request.prompt", "exception.message"), "my secret")
    row = row_of(attributes=secrets, resource={"service.name": "a", "process.command": "secret"})
    assert "secret" not in str(row)


@pytest.mark.parametrize(
    "scope", ["stepscope", "opentelemetry.instrumentation.fastapi", "vllmish", ""]
)
def test_what_others_tell_is_counted_and_not_kept(scope: str) -> None:
    taken = taken_of(scope=scope, num_spans=3)
    assert (taken.spans, taken.num_foreign) == ([], 3)


@pytest.mark.parametrize("scope", ["vllm", "vllm.llm_engine", "vllm.tracing.otel"])
def test_scopes_of_older_versions_are_vllms_too(scope: str) -> None:
    assert len(taken_of(scope=scope).spans) == 1


@pytest.mark.parametrize("seconds", [-5.2, math.nan, math.inf, 1e300, "soon", True])
def test_a_time_that_cannot_be_is_not_measured(seconds: Any) -> None:
    assert row_of(attributes={"gen_ai.latency.time_in_queue": seconds})["queue_ns"] is None


@pytest.mark.parametrize("count", [-1, 1 << 40, 7.5, "many", True])
def test_a_count_that_cannot_be_is_not_measured(count: Any) -> None:
    assert row_of(attributes={"gen_ai.usage.prompt_tokens": count})["num_prompt_tokens"] is None


def test_what_is_not_there_is_not_measured() -> None:
    row = row_of()
    assert {row[name] for name in ("queue_ns", "num_output_tokens", "attributes", "model")} == {
        None
    }


def test_a_number_that_json_does_not_know_is_left_out() -> None:
    assert row_of(attributes={"gen_ai.request.temperature": math.nan})["attributes"] is None


def test_names_are_bounded_and_printable() -> None:
    wild = "\x1b[31m" + "x" * 10_000
    row = row_of(
        name=wild, attributes={"gen_ai.response.model": wild}, resource={"service.name": wild}
    )
    for column in ("name", "model", "service"):
        assert "\x1b" not in row[column]
        assert len(row[column]) == 256


def test_an_id_is_kept_as_it_is_to_be_found_again() -> None:
    wild = "\x1b[31m<script>"
    assert row_of(attributes={"gen_ai.request.id": wild})["request_id"] == wild
    long = row_of(attributes={"gen_ai.request.id": "x" * 10_000})["request_id"]
    assert len(long) == 1_024


def test_a_failed_span_says_so_and_not_why() -> None:
    message = export()
    span = message.resource_spans[0].scope_spans[0].spans[0]
    span.status.code, span.status.message = 2, "the prompt was: secret"
    (told,) = take_apart(message, earliest_ts=0, latest_ts=1 << 62).spans
    assert told.row["attributes"] == '{"error": true}'


def test_a_start_after_the_end_is_not_known() -> None:
    message = export()
    span = message.resource_spans[0].scope_spans[0].spans[0]
    span.start_time_unix_nano = span.end_time_unix_nano + 1
    (told,) = take_apart(message, earliest_ts=0, latest_ts=1 << 62).spans
    assert told.row["start_ts"] is None
    assert told.description().started_ts == told.row["ts"]


@pytest.mark.parametrize(
    ("end_ns", "why"),
    [
        (0, "it has no end"),
        (1, "compare the clocks"),
        ((1 << 64) - 1, "compare the clocks"),
    ],
)
def test_a_span_of_no_possible_time_is_refused(end_ns: int, why: str) -> None:
    taken = taken_of(end_ns=end_ns, num_spans=2)
    assert taken.spans == []
    ((reason, number),) = taken.refused.items()
    assert why in reason
    assert number == 2


@pytest.mark.parametrize(("trace", "span"), [(b"", bytes(8)), (bytes(16), b"x"), (bytes(8), b"")])
def test_a_span_without_proper_ids_is_refused(trace: bytes, span: bytes) -> None:
    message = export()
    told = message.resource_spans[0].scope_spans[0].spans[0]
    told.trace_id, told.span_id = trace, span
    taken = take_apart(message, earliest_ts=0, latest_ts=1 << 62)
    assert dict(taken.refused) == {"a trace id is 16 bytes and a span id 8": 1}
