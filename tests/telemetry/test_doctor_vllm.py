"""`stepscope doctor` on a vLLM: what its plug-in records, what not, and what would add it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from telemetry.doctor.plugin import PluginReport, plugin_checks, plugin_report
from telemetry.doctor.vllm_flags import FLAGS, has_flag
from telemetry.records import EngineRow, Event, RunClock
from telemetry.ring import RingRecorder
from telemetry.sources.vllm.compatibility import (
    GIVEN_UP,
    TESTED_VERSIONS,
    Compatibility,
    Features,
)
from telemetry.sources.vllm.guard import MAX_ERRORS, Guard
from telemetry.sources.vllm.settings import plugin_state
from telemetry.vocabulary import EventKind
from tests.telemetry.collector.builders import RINGS, collect, record, ring_for
from tests.telemetry.test_commands import run

VERSION = f"{TESTED_VERSIONS[-1]}.0"
SHARED_FLAGS = Path(__file__).parents[3] / "shared" / "vllm" / "flags.json"

ALL_ON: dict[str, Any] = {
    "cache": {"enable_prefix_caching": True},
    "kv_events": {"enable_kv_cache_events": True},
    "log_stats": True,
    "shutdown_timeout": 10,
    "has_otlp_traces": True,
}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    return tmp_path / "log"


def compatibility(lacking: dict[str, str] | None = None, version: str = VERSION) -> Compatibility:
    off = dict.fromkeys(lacking or {}, False)
    return Compatibility(
        version=version,
        scheduler="AsyncScheduler",
        features=Features(**off),
        lacking=lacking or {},
    )


def vllm_row(found: Compatibility, **settings: Any) -> EngineRow:
    told = {"stepscope": plugin_state(found), **ALL_ON, **settings}
    return EngineRow(source="vllm", version=found.version, settings=json.dumps(told))


def recorded_vllm(log: Path, row: EngineRow) -> RingRecorder:
    ring = ring_for(log)
    ring.describe_engine(row)
    record(ring, 0, 4)
    return ring


def report_of(row: EngineRow) -> PluginReport:
    facts = {"source": row.source, "version": row.version, "settings": row.settings}
    report = plugin_report(facts)
    assert report is not None
    return report


def said_of(row: EngineRow) -> dict[str, str]:
    """Returns what is said of an engine: the level, and each text by the name of its check."""
    return {c.name: f"{c.level}: {c.text}" for c in plugin_checks(report_of(row))}


def doctor(log: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    run("doctor", "--log", str(log))
    return capsys.readouterr().out.splitlines()


# ------------------------------------------------------------------------------- the whole report


def test_a_vllm_that_is_recorded_in_full(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded_vllm(log, vllm_row(compatibility())).close()
    collect(log)
    said = doctor(log, capsys)
    assert f"✓ version          vLLM {VERSION}, AsyncScheduler" in said
    assert "✓ plug-in          records all that this version lets it" in said
    assert any(line.startswith("✓ records          steps, arrivals and ends") for line in said)
    assert not any(line.split()[1:2] in (["lacking"], ["could"]) for line in said)


def test_before_a_collector_has_read_it_the_ring_tells(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = recorded_vllm(log, vllm_row(compatibility({"drafts": "no Scheduler.drafts()"})))
    said = doctor(log, capsys)
    ring.close()
    assert "▲ plug-in          records in part, 1 of its features lack" in said
    assert "▲ lacking          draft tokens: no Scheduler.drafts()" in said


def test_a_plug_in_that_gave_up_is_told_with_its_reason(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = RunClock.start()
    ring = recorded_vllm(log, vllm_row(compatibility()))
    for text in (f"5 errors, the last: a hook failed. {GIVEN_UP}", "the log was full for 3 s"):
        ring.record_events(
            [Event(kind=EventKind.recorder_degraded, step=4, ts=clock.now(), text=text)]
        )
    ring.close()
    collect(log)
    line = next(line for line in doctor(log, capsys) if "plug-in" in line)
    assert line == (
        f"✗ plug-in          gave up: 5 errors, the last: a hook failed. {GIVEN_UP}; "
        "restart vLLM to record again"
    )


def test_an_engine_that_failed_did_not_just_end(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = RunClock.start()
    ring = recorded_vllm(log, vllm_row(compatibility()))
    failed = Event(kind=EventKind.engine_failed, step=4, ts=clock.now(), text="RuntimeError")
    ring.record_events([failed])
    ring.close()
    collect(log)
    said = doctor(log, capsys)
    assert "✗ failed           in step 4: RuntimeError; see the engine's own log" in said
    assert not any(line.startswith("✓ ended") for line in said)


def test_the_plug_in_gives_up_in_the_words_that_doctor_knows() -> None:
    said: list[str] = []
    guard = Guard(lambda _: None, said.append)
    for _ in range(MAX_ERRORS):
        guard.failed("a hook", RuntimeError())
    (last,) = said
    assert GIVEN_UP in last


def test_json_tells_the_same(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lacking = {"encoder": "no class EncoderCacheManager"}
    recorded_vllm(log, vllm_row(compatibility(lacking), has_otlp_traces=False)).close()
    collect(log)
    run("doctor", "--log", str(log), "--format", "json")
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    plugin = engine["plugin"]
    assert (plugin["state"], plugin["version"]) == ("partial", VERSION)
    assert plugin["lacking"] == {"encoder items": "no class EncoderCacheManager"}
    assert "encoder items" not in plugin["recorded"]
    assert [addition["flag"] for addition in plugin["additions"]] == ["--otlp-traces-endpoint"]


def test_an_engine_of_ours_has_no_plug_in(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded_vllm(log, EngineRow(source="stepscope", settings="{}")).close()
    collect(log)
    run("doctor", "--log", str(log), "--format", "json")
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    assert engine["plugin"] is None
    assert "plug-in" not in [check["name"] for check in engine["checks"]]


def test_without_an_engine_it_says_how_to_attach_a_vllm(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "\n".join(doctor(log, capsys))
    assert f"start vLLM with STEPSCOPE_LOG={log}" in said
    assert f"stepscope collect --log {log}" in said


# ------------------------------------------------------------------------------------- its parts


def test_a_vllm_without_the_plug_in_is_told_how_to_get_it() -> None:
    said = said_of(EngineRow(source="vllm", version=VERSION, settings="{}"))
    assert list(said) == ["plug-in"]
    assert said["plug-in"].startswith("unknown: not in this vLLM")
    assert "pip install stepscope" in said["plug-in"]


def test_a_version_that_was_not_tested_is_a_warning() -> None:
    said = said_of(vllm_row(compatibility(version="0.99.1")))
    assert said["version"] == (
        "warn: vLLM 0.99.1, AsyncScheduler: not tested with this version of Stepscope"
    )
    assert said["plug-in"] == "good: records all that this version lets it"


ADDITIONS = [
    ({"has_otlp_traces": False}, "--otlp-traces-endpoint"),
    ({"cache": {"enable_prefix_caching": False}}, "--enable-prefix-caching"),
    ({"kv_events": None}, "--kv-events-config"),
    ({"kv_events": {"enable_kv_cache_events": False}}, "--kv-events-config"),
    ({"shutdown_timeout": 0}, "--shutdown-timeout"),
    ({"log_stats": False}, "--disable-log-stats"),
]


@pytest.mark.parametrize(("settings", "flag"), ADDITIONS)
def test_what_a_setting_keeps_out_is_named_with_its_flag(
    settings: dict[str, Any], flag: str
) -> None:
    (addition,) = report_of(vllm_row(compatibility(), **settings)).additions
    assert addition.flag == flag
    assert flag in addition.how


@pytest.mark.parametrize(("settings", "flag"), ADDITIONS)
def test_no_flag_is_named_that_a_version_may_not_have(settings: dict[str, Any], flag: str) -> None:
    (addition,) = report_of(vllm_row(compatibility(version="0.99.1"), **settings)).additions
    assert addition.flag is None
    assert "--" not in addition.how
    assert "vLLM 0.99.1" in addition.how


def test_settings_that_say_nothing_of_it_bring_no_advice() -> None:
    told = json.dumps({"stepscope": plugin_state(compatibility())})
    assert report_of(EngineRow(source="vllm", version=VERSION, settings=told)).additions == []


@pytest.mark.parametrize(
    "settings",
    [None, "", "{", "[]", "3", '{"stepscope": 1}', '{"stepscope": null}'],
)
def test_settings_of_any_kind_do_no_harm(settings: str | None) -> None:
    assert report_of(EngineRow(source="vllm", settings=settings)).state == "absent"


def test_a_plug_in_of_another_version_may_say_other_things() -> None:
    told = {"stepscope": {"features": {"new_kind": True, "old": 0}, "lacking": [], "more": 1}}
    report = report_of(EngineRow(source="vllm", settings=json.dumps(told)))
    assert (report.recorded, report.lacking, report.state) == (["new kind"], {}, "recording")


# ------------------------------------------------------------------------------------- the flags


def test_the_flags_of_every_tested_version_are_known() -> None:
    assert set(TESTED_VERSIONS) <= set(FLAGS)


def test_each_flag_is_one_of_vllms() -> None:
    if not SHARED_FLAGS.is_file():
        pytest.skip(f"{SHARED_FLAGS} is not here: the list of vLLM's flags to compare with")
    found = json.loads(SHARED_FLAGS.read_text())
    theirs = {name for flag in found["flags"] for name in flag["flags"]}
    ours = FLAGS[found["version"].rpartition(".")[0]]
    assert ours <= theirs


@pytest.mark.parametrize("version", [None, "", "0.320.0", "0.3", "1.0.32"])
def test_a_version_that_only_looks_alike_has_no_flag(version: str | None) -> None:
    assert not has_flag(version, "--otlp-traces-endpoint")
