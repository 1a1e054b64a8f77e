"""The incident cases, from scrapes alone: the right rule first or an honest "not measured"."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.diagnosis import diagnose
from diagnose.json_output import to_json
from tests.cases import (
    CASES,
    Document,
    Outcome,
    diagnose_nothing,
    diagnose_scrapes,
    read_cases,
    run_cases,
    summary,
)
from tests.diagnose.logs import log_of
from tests.diagnose.scrapes import read_scrapes

pytestmark = pytest.mark.skipif(
    not CASES.exists(), reason=f"the incident cases are not at {CASES}: not run"
)

DECIDABLE = 30
"""Cases that scrapes alone decide."""
ALL = read_cases(CASES) if CASES.exists() else []

_mismatches: list[str] = []


def in_memory(scrapes: Path, log: Path) -> Document:
    """As `tests.cases.diagnose_scrapes`, without a log on disk; also asks each number's SQL."""
    memory = log_of(*read_scrapes(scrapes))
    document: Document = json.loads(to_json(diagnose(memory)))
    for finding in document["findings"]:
        for item in finding["evidence"]:
            answer = memory.query(item["sql"]).to_pylist()[0].get("value", item["value"])
            if answer != pytest.approx(item["value"]):
                told = f"{item['name']}: {item['value']}, its SQL says {answer}"
                _mismatches.append(f"{scrapes.parent.name}: {finding['rule']}: {told}")
    return document


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {outcome.case: outcome for outcome in run_cases(ALL, in_memory)}


@pytest.mark.parametrize("case", [case["id"] for case in ALL])
def test_no_rule_fires_that_must_not(outcomes: dict[str, Outcome], case: str) -> None:
    assert outcomes[case].false == ()


def test_every_case_is_named_or_what_is_missing_is(outcomes: dict[str, Outcome]) -> None:
    assert [each.line for each in outcomes.values() if each.outcome == "missed"] == []


def test_what_scrapes_decide_is_decided(outcomes: dict[str, Outcome]) -> None:
    assert sum(each.outcome == "named" for each in outcomes.values()) >= DECIDABLE


def test_every_number_is_what_its_sql_gives(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) == len(ALL)
    assert _mismatches == []


def test_every_verdict_says_what_it_was_told_by(outcomes: dict[str, Outcome]) -> None:
    silent = [each.case for each in outcomes.values() if "scrapes alone" not in each.sentence]
    assert silent == []


def test_a_diagnoser_that_says_nothing_names_nothing() -> None:
    empty = run_cases(ALL, diagnose_nothing)
    assert summary(empty) == f"cases: named 0, abstained 0, missed {len(ALL)}, false 0"


def test_the_command_line_says_the_same_as_the_library(outcomes: dict[str, Outcome]) -> None:
    two = [
        case for case in ALL if case["id"] in ("preempt-watermark-sweep", "lora-cap-blocks-others")
    ]
    assert run_cases(two, diagnose_scrapes) == [outcomes[case["id"]] for case in two]
