"""A full disk: counted, told by `doctor`, recovered from without a restart, nothing doubled."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run([*NAMESPACE, *mount], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not can_mount(tmp_path_factory.mktemp("probe")):
        pytest.skip("this system lets nobody mount a small tmpfs")
    folder = tmp_path_factory.mktemp("disk_full")
    script = [sys.executable, "-m", "tests.telemetry.collector.small_disk", str(folder)]
    done = subprocess.run([*NAMESPACE, *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_counted_and_named(seen: dict[str, Any]) -> None:
    assert "failed attempts: " in seen["outage"]
    assert "No space left" in seen["outage"]


def test_doctor_tells_it(seen: dict[str, Any]) -> None:
    assert any(
        level == "bad" and "could not be written" in text for level, _, text in seen["doctor"]
    )


def test_the_same_collector_goes_on_and_the_record_has_it(seen: dict[str, Any]) -> None:
    assert seen["same"]
    assert len(seen["notes"]) == 1
    assert "could not be written for" in seen["notes"][0][0]
