"""The files as the tools that read them judge them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.lines import BINARY, DEPLOY, UNITS

ANALYSE = shutil.which("systemd-analyze")
PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(ANALYSE is None, reason="no systemd-analyze: apt-get install systemd")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    units = []
    for unit in UNITS:
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace(BINARY, sys.executable))
        units.append(str(copy))
    done = subprocess.run(
        [str(ANALYSE), "verify", *units], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(ANALYSE is None, reason="no systemd-analyze: apt-get install systemd")
def test_a_wrong_unit_is_noticed(tmp_path: Path) -> None:
    unit = tmp_path / "wrong.service"
    unit.write_text("[Service]\nExecStart=/nowhere/at/all\n")
    done = subprocess.run([str(ANALYSE), "verify", str(unit)], capture_output=True, check=False)
    assert done.returncode != 0


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: apt-get install prometheus")
def test_prometheus_takes_its_configuration() -> None:
    command = [str(PROMTOOL), "check", "config", str(DEPLOY / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
