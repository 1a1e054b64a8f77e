"""`doctor --probe` as a container runs it: its exit code is the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope import main
from telemetry.vocabulary import Phase
from tests.telemetry.collector.builders import (
    RINGS,
    collector_process,
    record,
    ring_for,
    wait_for_collector,
)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    return tmp_path / "log"


def test_an_engine_and_its_collector_that_get_on(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = ring_for(log)
    record(ring, 0, 30)
    with collector_process(log):
        wait_for_collector(log)
        assert main(["doctor", "--log", str(log), "--probe"]) == 0
    assert capsys.readouterr().out.count("✓") == 2
    ring.close()


def test_an_engine_that_stands_still_fails(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = ring_for(log)
    record(ring, 0, 30)
    assert main(["doctor", "--log", str(log), "--probe", "engine", "--stall", "0"]) == 1
    assert "in phase forward" in capsys.readouterr().out
    ring.close()


def test_an_engine_without_work_may_stand_still(log: Path) -> None:
    ring = ring_for(log)
    record(ring, 0, 30)
    ring.enter_phase(29, Phase.idle)
    assert main(["doctor", "--log", str(log), "--probe", "engine", "--stall", "0"]) == 0
    ring.close()


def test_what_cannot_be_known_passes(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--log", str(log), "--probe", "engine"]) == 0
    assert capsys.readouterr().out.startswith("–")


def test_no_collector_fails(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.probe.time.sleep", lambda _: None)
    assert main(["doctor", "--log", str(log), "--probe", "collector"]) == 1
    assert "✗ the collector does not answer: none runs" in capsys.readouterr().out
