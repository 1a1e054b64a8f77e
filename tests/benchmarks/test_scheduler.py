from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AS_FILE = ("benchmarks/scheduler.py",)
AS_MODULE = ("-m", "benchmarks.scheduler")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )


@pytest.mark.parametrize("how", [AS_FILE, AS_MODULE], ids=["file", "module"])
def test_json_is_all_that_is_printed(how: tuple[str, ...]) -> None:
    rows = json.loads(run(*how, "--quick", "--json").stdout)["rows"]
    assert [row["workload"] for row in rows] == [
        "decode",
        "closed_loop_ample",
        "closed_loop_scarce",
        "preemption_storm",
        "mixed_prefill",
    ]


def test_without_vllm_only_ours_is_measured() -> None:
    row = json.loads(run(*AS_FILE, "--quick", "--json").stdout)["rows"][0]
    ours_us = row.pop("ours_us")
    assert ours_us > 0
    assert row == {
        "workload": "decode",
        "running": 4,
        "prefix_caching": True,
        "vllm_us": None,
        "ratio": None,
    }


def test_recording_stands_beside_recording_off() -> None:
    table = run(*AS_FILE, "--quick", "--recording").stdout
    assert table.count("ours, recorded") >= 5


def test_a_python_without_vllm_is_an_error() -> None:
    result = subprocess.run(
        [sys.executable, *AS_FILE, "--quick", "--json", "--vllm-python", "/nowhere/python"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert "/nowhere/python" in result.stderr
