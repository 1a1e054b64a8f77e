"""With numpy alone: the recorder works, and a command that needs more names its extra."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stepscope import EXTRAS
from tests.vllm_venv import VllmNotInstallableError, vllm_python
from tests.whole_line.vllm.plugin import build_wheel, would_install

NOT_THERE = tuple(package for packages in EXTRAS.values() for package in packages)

WITHOUT = f"""
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_THERE!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that finds nothing of the extras, whatever is installed here."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


def stepscope(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("import stepscope; sys.exit(stepscope.main(sys.argv[1:]))", *arguments)


@pytest.mark.parametrize("package", NOT_THERE)
def test_the_extras_are_really_hidden(package: str) -> None:
    assert f"No module named {package!r}" in run(f"import {package}").stderr


def test_help_needs_no_extra() -> None:
    result = stepscope("--help")
    assert result.returncode == 0, result.stderr
    assert "diagnose" in result.stdout


def test_the_recorder_needs_no_extra(tmp_path: Path) -> None:
    code = """
from telemetry.records import RunClock, StepRow
from telemetry.ring import open_recorder
recorder = open_recorder(None, RunClock.start())
recorder.record_step(StepRow(step=0, ts=1), [], None)
print(recorder.is_recording)
recorder.close()
"""
    ring = {"STEPSCOPE_RING_DIR": str(tmp_path), "STEPSCOPE_RING_MB": "1"}
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **ring},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("diagnose",), "collect"),
        (("query", "SELECT 1"), "collect"),
        (("collect",), "collect"),
        (("doctor",), "collect"),
        (("step", "1"), "collect"),
        (("serve",), "engine"),
        (("load", "--url", "http://127.0.0.1:9", "--preset", "storm"), "engine"),
        (("dashboard",), "dashboard"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    command: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    result = stepscope(*command, "--log", str(tmp_path))
    assert result.returncode == 2
    assert f"pip install 'stepscope[{extra}]'" in result.stderr
    assert result.stderr.count("\n") == 1


# ------------------------------------------------------------------------- beside a stock vLLM


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an operator installs, built of this checkout."""
    return build_wheel(Path(sys.executable), tmp_path_factory.mktemp("wheel"))


def test_the_wheel_brings_the_plug_in_and_its_entry_point(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        said = archive.read(entry_points).decode()
    assert "[vllm.general_plugins]\nstepscope = stepscope_vllm:register" in said
    assert {"stepscope_vllm.py", "telemetry/sources/vllm/registration.py"} <= names


def test_into_a_vllm_environment_pip_installs_stepscope_and_nothing_else(wheel: Path) -> None:
    try:
        python = vllm_python()
    except VllmNotInstallableError as error:
        pytest.skip(str(error))
    assert would_install(python, wheel) == ["stepscope"]
