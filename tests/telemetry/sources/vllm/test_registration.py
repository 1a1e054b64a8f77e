"""The plug-in gets into an engine core, and nothing that goes wrong with it stops vLLM."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import stepscope_vllm
from telemetry.sources.vllm import registration, subclassing
from telemetry.sources.vllm.registration import attach, recording
from tests.telemetry.sources.vllm.real_findings import real_findings

ROOT = Path(__file__).parents[4]

FAKE_VLLM = """
class Chosen: ...

class SchedulerConfig:
    def get_scheduler_cls(self):
        return Chosen
"""

CALL = """
import sys
import stepscope_vllm
stepscope_vllm.register()
from vllm.config import SchedulerConfig
print(hasattr(SchedulerConfig.get_scheduler_cls, "_stepscope_records"))
print(*sorted(m for m in sys.modules if m.partition(".")[0] == "telemetry"))
"""


class Config:
    """A scheduler configuration that was told which class to use."""

    def __init__(self, chosen: Any) -> None:
        self.chosen = chosen

    def get_scheduler_cls(self) -> Any:
        return self.chosen


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test wraps and warns anew."""
    monkeypatch.setattr(Config, "get_scheduler_cls", Config.get_scheduler_cls)
    recording.cache_clear()


def recorded(base: type) -> type:
    return type(f"Recorded{base.__name__}", (base,), {})


# ------------------------------------------------------------------------------ the entry point


def test_vllm_finds_the_entry_point_under_its_own_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (name, value), *others = project["project"]["entry-points"]["vllm.general_plugins"].items()
    found = EntryPoint(name, value, "vllm.general_plugins").load()
    assert (name, found, others) == ("stepscope", stepscope_vllm.register, [])
    assert "stepscope_vllm" in project["tool"]["setuptools"]["py-modules"]


def in_a_process(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the entry point as a vLLM does that was started in `folder`."""
    (folder / "vllm").mkdir(exist_ok=True)
    (folder / "vllm" / "__init__.py").touch()
    (folder / "vllm" / "config.py").write_text(FAKE_VLLM)
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-c", CALL],
        cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_variable_nothing_is_imported_or_touched(tmp_path: Path) -> None:
    done = in_a_process(tmp_path)
    assert (done.stdout, done.stderr) == ("False\n\n", "")


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    assert in_a_process(tmp_path, STEPSCOPE_LOG="").stdout == "False\n\n"


@pytest.mark.parametrize("variable", ["STEPSCOPE_LOG", "STEPSCOPE_RING_DIR"])
def test_either_variable_has_it_wait_for_an_engine_core(variable: str, tmp_path: Path) -> None:
    done = in_a_process(tmp_path, **{variable: str(tmp_path / "log")})
    attached, modules = done.stdout.splitlines()
    assert (attached, done.stderr) == ("True", "")
    assert modules.split() == [
        "telemetry",
        "telemetry.sources",
        "telemetry.sources.vllm",
        "telemetry.sources.vllm.registration",
    ]
    assert not (tmp_path / "log").exists()


def test_a_folder_of_the_users_with_our_name_leaves_vllm_alone(tmp_path: Path) -> None:
    (tmp_path / "telemetry").mkdir()
    theirs = tmp_path / "telemetry" / "__init__.py"
    theirs.write_text("raise SystemExit('the user’s own')")
    done = in_a_process(tmp_path, STEPSCOPE_LOG=str(tmp_path / "log"))
    assert done.stdout == "False\n\n"
    assert str(theirs) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_vllm_without_such_a_configuration_starts_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    call = CALL.partition("from vllm.config")[0]
    done = subprocess.run(
        [sys.executable, "-c", call],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "STEPSCOPE_LOG": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.startswith("stepscope: vLLM runs unrecorded, the plug-in has failed: ")
    assert done.stderr.count("\n") == 1


# ----------------------------------------------------------------------- the scheduler's class


class Own:
    """A scheduler class of a user's."""


def test_the_answer_is_a_subclass_of_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subclassing, "recording_subclass", recorded)
    attach(Config)
    found = Config(Own).get_scheduler_cls()
    assert found.__mro__[:2] == (found, Own)
    assert found is not Own


def test_attaching_twice_wraps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subclassing, "recording_subclass", recorded)
    attach(Config)
    once = Config.get_scheduler_cls
    attach(Config)
    assert Config.get_scheduler_cls is once


def test_every_engine_of_a_process_gets_the_same_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subclassing, "recording_subclass", recorded)
    attach(Config)
    assert Config(Own).get_scheduler_cls() is Config(Own).get_scheduler_cls()


def test_a_class_that_records_already_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subclassing, "recording_subclass", recorded)
    made = recording(Own)
    assert recording(made) is made


def test_a_failure_gives_vllm_its_own_class_and_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(scheduler: type) -> type:
        raise RuntimeError(f"cannot record {scheduler.__name__}")

    monkeypatch.setattr(subclassing, "recording_subclass", fail)
    attach(Config)
    assert {Config(Own).get_scheduler_cls() for _ in range(3)} == {Own}
    assert caplog.messages == [
        "stepscope: vLLM runs unrecorded, the plug-in has failed: RuntimeError('cannot record Own')"
    ]


def test_what_vllm_itself_raises_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Config) -> type:
        raise ValueError("no such scheduler")

    monkeypatch.setattr(Config, "get_scheduler_cls", refuse)
    attach(Config)
    with pytest.raises(ValueError, match="no such scheduler"):
        Config(Own).get_scheduler_cls()


def test_a_scheduler_of_another_kind_passes_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert recording(Own) is Own
    assert recording(Own) is Own
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "with Own cannot be recorded" in record.getMessage()


# ------------------------------------------------------------------------------- in a real vLLM


@pytest.mark.parametrize(
    ("chosen", "bases"),
    [
        ("default", ["RecordedScheduler", "Scheduler"]),
        ("asynchronous", ["RecordedAsyncScheduler", "AsyncScheduler", "Scheduler"]),
        ("own", ["RecordedTheirScheduler", "TheirScheduler", "Scheduler"]),
    ],
)
def test_vllm_gets_a_subclass_of_what_it_chose(chosen: str, bases: list[str]) -> None:
    found = real_findings()["attached"]["bases"][chosen]
    assert found[: len(bases)] == bases


def test_the_ring_of_a_real_scheduler_says_what_engine_it_is() -> None:
    attached = real_findings()["attached"]
    assert attached["is_held"]
    description = attached["description"]
    assert (description["source"], description["model"]) == ("vllm", "tiny")
    assert description["num_usable_blocks"] == 64
    assert json.loads(description["settings"])["stepscope"]["lacking"] == {}


def test_the_mark_is_the_one_that_the_tests_look_for() -> None:
    assert registration._MARK in CALL
