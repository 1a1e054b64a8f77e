"""The processes of one vLLM are one engine; what an operator tells apart stays apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from telemetry.sources.otlp.decoding import from_protobuf
from telemetry.sources.otlp.resources import describe, engine_of, is_nameless
from telemetry.sources.otlp.spans import take_apart
from tests.telemetry.sources.otlp.builders import CAPTURED

DRAWN = "35efc6e7-7b66-4c04-b1a9-d5a0e61b34fa", "17b8ee17-e17b-427b-afab-427fb72ad595"


def resource(**more: Any) -> dict[str, Any]:
    return {"service.name": "chat", **more}


def test_the_processes_of_a_real_vllm_are_one_engine() -> None:
    engines = {
        span.engine
        for name in ("export_0001_grpc.pb", "export_0003_grpc.pb", "export_0006_grpc.pb")
        for span in take_apart(
            from_protobuf((CAPTURED / name).read_bytes()), earliest_ts=0, latest_ts=1 << 62
        ).spans
    }
    assert len(engines) == 1


def test_an_id_that_the_sdk_draws_tells_nothing() -> None:
    first, second = (resource(**{"service.instance.id": each}) for each in DRAWN)
    assert engine_of(first) == engine_of(second)
    assert is_nameless(first)
    assert describe(first, 5) == describe(second, 5)


@pytest.mark.parametrize(
    "name",
    ["service.name", "service.namespace", "service.instance.id", "k8s.pod.name", "host.name"],
)
def test_what_an_operator_sets_tells_engines_apart(name: str) -> None:
    assert engine_of(resource(**{name: "a"})) != engine_of(resource(**{name: "b"}))


def test_a_chosen_instance_counts_for_more_than_its_host() -> None:
    one = {"service.instance.id": "replica-1"}
    moved = engine_of(resource(**one, **{"host.name": "b"}))
    assert engine_of(resource(**one, **{"host.name": "a"})) == moved


def test_the_description_says_who_it_is_and_when_it_was_first_seen() -> None:
    row = describe(resource(**{"host.name": "h", "process.command_line": "--api-key x"}), 5)
    assert (row.source, row.host, row.started_ts) == ("vllm", "h", 5)
    assert json.loads(row.settings or "") == {"service.name": "chat"}


@pytest.mark.parametrize(
    ("more", "host"),
    [
        ({"k8s.pod.name": "p", "host.name": "h"}, "p"),
        ({"service.instance.id": "i", "host.name": "h"}, "h"),
        ({"service.instance.id": "i"}, "i"),
        ({"service.instance.id": DRAWN[0]}, None),
    ],
)
def test_where_it_is_stands_in_a_column_that_a_bundle_salts(
    more: dict[str, str], host: str | None
) -> None:
    assert describe(resource(**more), 5).host == host


def test_a_resource_that_says_nothing_has_an_engine_too() -> None:
    assert engine_of({}) == engine_of({"service.name": 7})
