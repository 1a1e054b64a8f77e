from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from diagnose.diagnosis import diagnose
from diagnose.json_output import to_json
from telemetry.vocabulary import StopReason
from tests.diagnose.logs import (
    MemoryLog,
    config,
    described,
    log_of,
    pressed,
    run,
    steps,
    storm_arrivals,
)
from tests.diagnose.scrapes import storm

ENGINE = 0xFEDCBA9876543210


def document(log: MemoryLog) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(to_json(diagnose(log)))
    return parsed


def test_the_shape_is_the_documented_one() -> None:
    assert list(document(log_of(pressed(num_evicted=20)))) == [
        "schema_version",
        "window",
        "verdict",
        "engines",
        "findings",
        "healthy",
        "suppressed",
        "not_measured",
        "accounting",
        "data_quality",
    ]


def test_a_finding_carries_all_that_is_known_of_it() -> None:
    finding = document(log_of(pressed(num_evicted=20)))["findings"][0]
    assert finding["rule"] == "kv-preemption-pressure"
    assert finding["severity"] == "high"
    assert finding["confidence"] in ("low", "medium", "high")
    assert finding["cause"]["kind"]
    assert finding["status"] == "cleared"
    assert {"flag", "from", "to", "trade_off", "verify", "revert"} <= set(finding["actions"][0])
    assert finding["affected_requests"][0]["times"] == 1


def test_a_log_that_cannot_be_replayed_predicts_no_effect_and_says_why() -> None:
    finding = document(log_of(pressed(num_evicted=20)))["findings"][0]
    assert [action["predicted"] for action in finding["actions"]] == [[], [], []]
    assert finding["prediction"].startswith("No effect is predicted: the log does not say how")


def test_the_sql_of_evidence_gives_its_rows_again() -> None:
    log = log_of(pressed(num_evicted=20))
    for item in document(log)["findings"][0]["evidence"]:
        assert log.query(item["sql"]).num_rows >= 1


def test_engines_are_sixteen_hex_digits() -> None:
    parsed = document(log_of(steps(described(engine=ENGINE), 100)))
    assert parsed["engines"][0]["engine"] == "fedcba9876543210"
    assert parsed["accounting"]["engine"] == "fedcba9876543210"


def test_the_largest_engine_number_is_found_in_the_log() -> None:
    parsed = document(log_of(steps(described(engine=(1 << 64) - 2), 100)))
    assert parsed["verdict"]["rule"] == "no-scheduler-fault"


def test_what_is_not_measured_is_null_and_named() -> None:
    log = steps(described(num_usable_blocks=None), 100, num_preemptions_total=None)
    parsed = document(log_of(log))
    assert parsed["accounting"]["preemptions"]["counter"] is None
    missing = {item["rule"]: item["missing"] for item in parsed["not_measured"]}
    assert "engines.num_usable_blocks" in missing["request-exceeds-kv-capacity"]


def test_a_suppressed_rule_names_who_silenced_it() -> None:
    parsed = document(log_of(pressed(num_evicted=6, times=3, pause_ns=20_000_000)))
    silenced = parsed["suppressed"][0]
    assert silenced["rule"] == "kv-preemption-pressure"
    assert silenced["by"] == "guard-light-preemption"
    assert silenced["number"]
    assert not re.search(r"e[+-]\d| ns\b| ratio\b", silenced["number"])


def test_an_empty_log_is_a_document_too() -> None:
    memory = log_of()
    parsed = document(memory)
    assert parsed["verdict"]["rule"] == "not-enough-data"
    assert parsed["engines"] == []
    assert parsed["accounting"] is None


def test_healthy_rules_carry_their_number() -> None:
    log = steps(described(), 100, stop=StopReason.queue_empty)
    healthy = {item["rule"]: item["number"] for item in document(log_of(log))["healthy"]}
    assert healthy["seq-slot-limit"] == "8 of 32"


SCHEMA = Path(__file__).parents[2] / "docs" / "diagnose.schema.json"


def closed(schema: Any) -> Any:
    """The published schema without room for keys that it does not describe."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(value) for name, value in schema.items()}
    if "properties" in inner:
        inner.setdefault("additionalProperties", False)
    return inner


LOGS = {
    "preempted": lambda: log_of(pressed(num_evicted=20)),
    "healthy": lambda: log_of(steps(described(), 100)),
    "empty": lambda: log_of(),
    "short": lambda: log_of(steps(described(), 3)),
    "a storm replayed": lambda: run(config(), storm_arrivals()).log(),
    "a storm in scrapes": lambda: log_of(storm()),
    "two engines": lambda: log_of(pressed(num_evicted=20), steps(described(engine=2), 100)),
}


@pytest.mark.parametrize("name", LOGS)
def test_documents_are_as_the_published_schema_says(name: str) -> None:
    schema = closed(json.loads(SCHEMA.read_text(encoding="utf-8")))
    jsonschema.validate(document(LOGS[name]()), schema)


def test_a_key_that_the_schema_does_not_describe_is_noticed() -> None:
    schema = closed(json.loads(SCHEMA.read_text(encoding="utf-8")))
    changed = document(LOGS["healthy"]()) | {"surprise": 1}
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(changed, schema)
