"""The strip: twelve checks, always the same, each with its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.checks import Check, all_checks
from dashboard.queries import panels
from diagnose.diagnosis import diagnose
from telemetry.store import open_log

NAMES = [
    "KV preemption",
    "Recomputed tokens",
    "Queue head short of blocks",
    "Engine is progressing",
    "Stuck scheduler",
    "Sequence slots",
    "Thrash",
    "Blocks left over",
    "Priority and cache resets",
    "Recorder",
    "KV connector, LoRA, drafts",
    "Token budget, grammar",
]


def checks_of(path: Path) -> dict[str, Check]:
    with open_log(path) as log:
        engine = diagnose(log).engines[0]
        facts = log.query(panels.facts(engine.scope)).to_pylist()[0]
    found = all_checks(engine, facts)
    assert [check.name for check in found] == NAMES
    return {check.name: check for check in found}


@pytest.fixture(scope="module")
def storm(storm_log: Path) -> dict[str, Check]:
    return checks_of(storm_log)


def test_a_storm_is_found_where_it_shows(storm: dict[str, Check]) -> None:
    found = {name for name, check in storm.items() if check.outcome == "found"}
    assert found == {"KV preemption", "Recomputed tokens", "Queue head short of blocks"}


def test_what_is_well_says_its_number(storm: dict[str, Check]) -> None:
    assert storm["Sequence slots"] == Check("Sequence slots", "healthy", "at most 28 of 32 used")
    assert storm["Recorder"].number.endswith("steps, 0 dropped")


def test_what_is_not_in_use_is_still_there(storm: dict[str, Check]) -> None:
    assert storm["KV connector, LoRA, drafts"].number == "not in use"


def test_a_calm_engine_has_nothing_found(calm_log: Path) -> None:
    assert all(check.outcome != "found" for check in checks_of(calm_log).values())


def test_a_death_and_lost_records_are_found(interrupted_log: Path) -> None:
    checks = checks_of(interrupted_log)
    assert checks["Engine is progressing"].outcome == "found"
    assert checks["Engine is progressing"].number.startswith("died in step")
    assert "60 dropped" in checks["Recorder"].number
    assert checks["Recorder"].outcome == "found"
