"""A storm in a recorded vLLM, through ring and collector: our own diagnosis explains it."""

from __future__ import annotations

import pytest

from diagnose.diagnosis import Diagnosis, diagnose
from telemetry.collector import Collector
from telemetry.store import open_log
from tests.telemetry.sources.vllm.conftest import Lab


@pytest.fixture(scope="module")
def storm(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    directory = tmp_path_factory.mktemp("log") / "storm"
    with Collector(directory, directories=[lab.rings], detail="full") as collector:
        collector.open()
        collector.drain()
    with open_log(directory) as log:
        return diagnose(log)


def test_the_counter_of_vllm_is_accounted_for(lab: Lab, storm: Diagnosis) -> None:
    account = storm.engines[0].accounting
    assert lab.runs.num_storm_preemptions > 30
    assert account.counter == account.num_rows == lab.runs.num_storm_preemptions
    assert account.equals_counter
    assert account.loss.identity_holds
    assert account.work.adds_up


def test_the_verdict_is_about_preemptions(storm: Diagnosis) -> None:
    assert storm.verdict.rule in ("kv-preemption-pressure", "kv-preemption-thrash")
