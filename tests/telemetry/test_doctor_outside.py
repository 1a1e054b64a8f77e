"""What `doctor` says of engines that nobody records."""

from __future__ import annotations

from pathlib import Path

from telemetry.doctor import examine, text_report
from telemetry.doctor.check import Check
from tests.telemetry.collector.builders import collect, record, ring_for
from tests.telemetry.sources.prometheus.pages import bring, real_page, vllm_page, write


def checks_of(log: Path) -> list[Check]:
    (engine,) = examine(log).engines
    return engine.checks


def test_an_engine_known_from_scrapes_alone_is_not_gone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    bring(log, write(tmp_path / "host-a", real_page(), real_page()))
    told = {check.name: check.text for check in checks_of(log)}
    assert told["seen outside"].startswith("2 scrapes, the newest 2026-09-21 14:13:35")
    assert "no cause is in the log" in told["recording"]
    assert "gone" not in told
    report = text_report(examine(log), colour=False)
    assert "at host-a" in report
    assert "newest row 2026-09-21 14:13:35" in report


def test_one_that_is_recorded_too_is_judged_by_its_record(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    ring = ring_for(log)
    record(ring, 0, 3)
    collect(log)
    bring(log, write(tmp_path / "host-a", vllm_page(num_requests_running=1)))
    names = [{check.name for check in engine.checks} for engine in examine(log).engines]
    ring.close()
    assert sorted("seen outside" in each for each in names) == [False, True]
    assert sorted("dropped" in each for each in names) == [False, True]
