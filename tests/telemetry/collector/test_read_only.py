"""A log directory that cannot be written: said at once, with the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.telemetry.collector.test_disk_full import NAMESPACE, can_mount

_READ_ONLY = """
mount -t tmpfs -o size=1m tmpfs "$1" && mkdir "$1/log" && mount -o remount,ro "$1" || exit 99
exec "$2" -m telemetry.collector --log "$1/log"
"""


def test_a_read_only_directory_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    (tmp_path / "disk").mkdir()
    if not can_mount(tmp_path / "probe"):
        pytest.skip("this system lets nobody mount a small tmpfs")
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", _READ_ONLY, "sh", str(tmp_path / "disk"), sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be a log directory" in done.stderr
    assert "--log or STEPSCOPE_LOG" in done.stderr


def test_a_file_in_its_place_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    done = subprocess.run(
        [sys.executable, "-m", "telemetry.collector", "--log", str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be a log directory" in done.stderr
