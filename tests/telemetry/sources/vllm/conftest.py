"""The runs of vLLM's own scheduler that several tests look at: made once, in vLLM's environment."""

from __future__ import annotations

import os
import pickle
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.telemetry.sources.vllm.lab_runs import LabRuns
from tests.vllm_venv import VllmNotInstallableError, vllm_python

ROOT = Path(__file__).parents[4]
VECTORS = ROOT / "tests" / "data" / "vectors"
MINUTES_FOR_ALL = 20 * 60
"""Limit of the first test, which may have to install vLLM."""


@dataclass(frozen=True)
class Lab:
    """What came of all runs, and where the ring of the storm lies."""

    runs: LabRuns
    rings: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the tests that need vLLM the time that an installation takes."""
    for item in items:
        if "lab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(MINUTES_FOR_ALL))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Returns all runs; skips where there can be no vLLM."""
    try:
        python = vllm_python()
    except VllmNotInstallableError as error:
        pytest.skip(f"NO REAL VLLM WAS TESTED: {error}")
    out = tmp_path_factory.mktemp("lab")
    vectors = [path for path in sorted(VECTORS.rglob("*.json")) if path.name != "index.json"]
    done = subprocess.run(
        [python, "-m", "tests.telemetry.sources.vllm.lab_runs", out, *vectors],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return Lab(pickle.loads((out / "runs.pickle").read_bytes()), out / "rings")
