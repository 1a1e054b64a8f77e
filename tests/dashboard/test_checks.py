"""The strip: twelve checks, always the same, each with its number."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.provoking.connector import SimulatedConnector
from benchmarks.provoking.recording import Recording
from benchmarks.provoking.scenarios.connectors import most_of_it
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call
from dashboard.checks import Check, all_checks, shape_of
from dashboard.queries import panels
from diagnose.diagnosis import diagnose
from diagnose.finding import Severity
from diagnose.rules import RULES
from engine.config import KVConnectorConfig
from telemetry.store import open_log
from tests.dashboard import logs

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
    slots = storm["Sequence slots"]
    assert (slots.outcome, slots.number) == ("healthy", "at most 28 of 32 used")
    assert storm["Recorder"].number.endswith("steps, 0 dropped")


def test_every_check_but_the_recorder_s_and_what_is_not_in_use_names_a_rule_with_a_page(
    storm: dict[str, Check],
) -> None:
    nameless = {name for name, check in storm.items() if check.rule not in RULES}
    assert nameless == {"Recorder", "KV connector, LoRA, drafts"}


def test_what_is_found_leads_to_its_finding(storm: dict[str, Check]) -> None:
    leads = {name for name, check in storm.items() if check.finding is not None}
    assert leads == {name for name, check in storm.items() if check.outcome == "found"}


def test_what_is_not_in_use_is_still_there(storm: dict[str, Check]) -> None:
    assert storm["KV connector, LoRA, drafts"].number == "not in use"


def test_what_a_step_spends_its_tokens_on_is_judged(storm: dict[str, Check]) -> None:
    check = storm["Token budget, grammar"]
    assert check.outcome == "healthy"
    assert check.number == "token budget: no prompt held up others"


@pytest.fixture(scope="module")
def stall(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Check]:
    """Loads of a connector that hang, until nothing runs any more."""
    config = settings(
        num_blocks=2000,
        kv_connector=KVConnectorConfig(connector="HostMemoryConnector", role="kv_both"),
    )
    connector = SimulatedConnector(
        num_tokens=most_of_it, load_seconds=lambda request: None if request.number > 4 else 0.1
    )
    engine = Recording(config, Random(0), connector=connector)
    engine.send([Call(at=0.5 * number, num_prompt_tokens=200) for number in range(9)])
    engine.run(until=180)
    return checks_of(logs.write_log(tmp_path_factory.mktemp("stall"), engine.rows()))


def test_what_hangs_in_a_connector_is_found(stall: dict[str, Check]) -> None:
    check = stall["KV connector, LoRA, drafts"]
    assert check.outcome == "found"
    assert check.severity is Severity.critical
    assert check.number.startswith("4 requests waiting for KV, up to ")
    assert shape_of(check) == "◆"


def test_an_engine_that_runs_nothing_is_not_called_progressing(stall: dict[str, Check]) -> None:
    check = stall["Engine is progressing"]
    assert check.outcome == "found"
    assert check.number.endswith("steps scheduled nothing with 4 requests waiting")


def test_the_sign_is_that_of_the_severity(interrupted_log: Path) -> None:
    checks = checks_of(interrupted_log)
    assert shape_of(checks["Recorder"]) == "■"
    assert shape_of(checks["Engine is progressing"]) == "▲"
    assert shape_of(checks["Thrash"]) == "✓"
    assert shape_of(checks["KV connector, LoRA, drafts"]) == "–"


def test_blocks_of_a_dead_engine_are_not_called_well(interrupted_log: Path) -> None:
    check = checks_of(interrupted_log)["Blocks left over"]
    assert check.outcome == "quiet"
    assert check.number.endswith("free when the engine died")


def test_a_calm_engine_has_nothing_found(calm_log: Path) -> None:
    assert all(check.outcome != "found" for check in checks_of(calm_log).values())


def test_a_death_and_lost_records_are_found(interrupted_log: Path) -> None:
    checks = checks_of(interrupted_log)
    assert checks["Engine is progressing"].outcome == "found"
    assert checks["Engine is progressing"].number.startswith("died in step")
    assert "60 dropped" in checks["Recorder"].number
    assert checks["Recorder"].outcome == "found"
