"""What our code finds in a real vLLM, which runs once for all tests that ask."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.vllm_venv import VllmNotInstallableError, vllm_python

ROOT = Path(__file__).parents[4]


@functools.cache
def real_findings() -> dict[str, Any]:
    """Returns what `real_engine` prints; skips where there is no vLLM."""
    return printed_by("real_engine.py")


def printed_by(program: str) -> dict[str, Any]:
    """Returns the JSON that a program beside this one prints, run by vLLM's Python.

    It is given an empty folder, in which its rings are. Skips where there is no vLLM.
    """
    try:
        python = vllm_python()
    except VllmNotInstallableError as error:
        pytest.skip(str(error))
    quiet = {"VLLM_LOGGING_LEVEL": "CRITICAL", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        ring = {"STEPSCOPE_RING_DIR": f"{folder}/rings", "STEPSCOPE_RING_MB": "1"}
        done = subprocess.run(
            [python, Path(__file__).with_name(program), folder],
            cwd=folder,
            env={**os.environ, **quiet, **ring, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
