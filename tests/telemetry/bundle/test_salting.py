"""Names are replaced wherever they stand."""

from __future__ import annotations

import json

import pyarrow as pa

from telemetry.bundle.salting import Salt


def test_the_texts_of_requests_go_and_those_of_the_engine_stay() -> None:
    rows = pa.table({"request": pa.array([1, None], pa.uint32()), "text": ["secret", "phase"]})
    assert Salt().apply("request_events", rows)["text"].to_pylist() == [None, "phase"]


def test_a_finding_names_nobody_either() -> None:
    salt = Salt()
    arrivals = pa.table({"request_id": ["req-7", None]})
    name = salt.apply("request_arrivals", arrivals)["request_id"][0].as_py()
    body = json.dumps({"sentence": "req-7 waits for req-70 (req-7).", "ids": ["req-7"], "n": 3})
    found = salt.apply("findings", pa.table({"body": [body, "no JSON: req-7", None]}))
    told, broken, none = found["body"].to_pylist()
    assert json.loads(told)["ids"] == [name]
    assert json.loads(told)["n"] == 3
    assert json.loads(told)["sentence"].startswith(f"{name} waits for req-70 ({name})")
    assert (broken, none) == ("{}", None)


def test_a_trace_stays_a_trace() -> None:
    rows = pa.table({"trace_id": ["ab" * 16], "parent_span_id": ["cd" * 8]})
    salted = Salt().apply("request_arrivals", rows).to_pylist()[0]
    assert (len(salted["trace_id"]), len(salted["parent_span_id"])) == (32, 16)
    assert salted["trace_id"] != "ab" * 16
