"""A vLLM's own scrapes and log, captured in a storm and in a stall: what they alone tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagnose.diagnosis import Diagnosis, EngineDiagnosis, diagnose
from diagnose.json_output import to_document
from diagnose.report import write_report
from stepscope import main
from telemetry.store import open_log
from tests.captured import DATA, captured_scrapes
from tests.diagnose.logs import MemoryLog, log_of
from tests.diagnose.scrapes import read_scrapes


def captured(name: str, directory: Path) -> MemoryLog:
    """The scrapes of a packed directory."""
    return log_of(*read_scrapes(captured_scrapes(name, directory)))


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> MemoryLog:
    return captured("preemption_storm", tmp_path_factory.mktemp("storm"))


@pytest.fixture(scope="module")
def stall(tmp_path_factory: pytest.TempPathFactory) -> MemoryLog:
    return captured("connector_stall", tmp_path_factory.mktemp("stall"))


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """The storm's log alone, imported and diagnosed."""
    log = tmp_path_factory.mktemp("console")
    file = DATA / "logs" / "serve_capture.log.gz"
    assert main(["import", "vllm-log", str(file), "--log", str(log)]) == 0
    with open_log(log) as opened:
        return diagnose(opened)


def engine_of(log: MemoryLog) -> EngineDiagnosis:
    (engine,) = diagnose(log).engines
    return engine


def text_of(log: MemoryLog) -> str:
    return write_report(diagnose(log)).text()


def test_the_storm_s_scrapes_are_pressure(storm: MemoryLog) -> None:
    verdict = engine_of(storm).verdict
    assert verdict.rule == "kv-preemption-pressure"
    assert "97 preemptions were counted for 88 requests that ended" in verdict.sentence
    assert verdict.sentence.endswith("(from 24 scrapes alone, 1.00 s apart).")


def test_the_storm_s_preemptions_are_counted_and_none_is_attributed(storm: MemoryLog) -> None:
    account = engine_of(storm).accounting
    assert (account.counter, account.num_rows, account.unattributed) == (97, 0, 97)
    told = to_document(diagnose(storm))["accounting"]
    assert told["preemptions"]["kv_full"] is None
    assert told["tokens"]["lost"] is None
    assert told["token_work"]["recomputed"] is None


def test_the_storm_s_text_has_no_empty_tables(storm: MemoryLog) -> None:
    text = text_of(storm)
    assert "97 preemptions counted, none attributed: no step record" in text
    assert "0 kv_full" not in text
    assert "0 steps" not in text
    assert "not in use" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_what_no_scrape_tells_is_named(storm: MemoryLog) -> None:
    missing = {said.rule: said.missing for said in engine_of(storm).not_measured}
    assert missing["kv-head-of-line"][0] == "steps.head_blocks_needed"
    assert missing["lora-slot-contention"] == ("vllm:lora_requests_info",)
    assert missing["seq-slot-limit"] == ("engines.max_num_seqs",)


def test_the_storm_s_counter_is_said_to_lag(storm: MemoryLog) -> None:
    assert any("counter of preemptions lags" in said for said in engine_of(storm).data_quality)


def test_the_stall_s_scrapes_show_loads_that_hold_blocks(stall: MemoryLog) -> None:
    engine = engine_of(stall)
    (finding,) = engine.findings
    assert finding.rule == "kv-preemption-pressure"
    assert "8 that waited held blocks with finished KV loads" in finding.cause.sentence
    assert finding.impact.cost[0].startswith("up to 24 requests were set aside")


def test_the_stall_s_scrapes_do_not_say_whose_loads_or_why_they_wait(stall: MemoryLog) -> None:
    engine = engine_of(stall)
    assert engine.findings[0].cause.kind == "undetermined"
    assert "connector_loads.outcome" in engine.findings[0].missing
    missing: dict[str, Any] = {said.rule: said.missing for said in engine.not_measured}
    assert "steps.num_blocks_waiting" in missing["connector-parked-deadlock"]


def test_a_short_stall_is_no_deadlock(stall: MemoryLog) -> None:
    healthy = {said.rule for said in engine_of(stall).healthy}
    assert {"admission-deadlock", "worker-hang", "remote-kv-wait-stuck"} <= healthy


def test_the_document_of_scrapes_has_the_shape_of_all_others(storm: MemoryLog) -> None:
    document = json.loads(json.dumps(to_document(diagnose(storm)), allow_nan=False))
    assert document["window"]["num_scrapes"] == 24
    assert document["engines"][0]["scrapes"]["num_preemptions"] == 97
    assert all(item["missing"] for item in document["not_measured"])
    assert {"rule", "severity", "confidence", "cause", "evidence", "actions"} <= set(
        document["findings"][0]
    )


def test_the_log_alone_infers_pressure_from_recomputation(console: Diagnosis) -> None:
    verdict = console.verdict
    assert verdict.rule == "kv-preemption-pressure"
    assert "at least 7,756 tokens were computed again, 28.6 % of all" in verdict.sentence
    assert "how often no line says" in verdict.sentence
    assert verdict.sentence.endswith("(from 1,244 iteration lines alone).")


def test_the_log_alone_counts_no_preemption(console: Diagnosis) -> None:
    (engine,) = console.engines
    assert engine.accounting.counter is None
    assert "vllm:num_preemptions_total" in engine.findings[0].missing
    text = write_report(console).text()
    assert "preemptions are not counted in what was read" in text
    assert "0 preemptions" not in text
