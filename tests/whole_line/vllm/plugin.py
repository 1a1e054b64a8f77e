"""Installs this checkout's plug-in for a vLLM, the way an operator would: as a wheel, with pip.

It goes into a folder that is on the vLLM's path and not into its environment: several checkouts
share that, and it stays as it was made. A dry run tells what pip would change in it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ("pyproject.toml", "README.md", "LICENSE", "stepscope.py")
PACKAGES = ("dashboard", "diagnose", "engine", "telemetry")
INSIDE = Path(__file__).with_name("inside")

ENTRY_POINTS = "[vllm.general_plugins]\nstep_witness = step_witness:register\n"
METADATA = "Metadata-Version: 2.1\nName: step-witness\nVersion: 0\n"


def build_wheel(python: Path, folder: Path) -> Path:
    """Returns the wheel of this checkout, built in `folder` with nothing from an index."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in SOURCE:
        shutil.copy(ROOT / name, source / name)
    for name in PACKAGES:
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    pip(python, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("stepscope-*.whl")
    return wheel


def install(python: Path, wheel: Path, site: Path) -> None:
    """Installs the wheel into `site`, and the two modules that tests have inside vLLM."""
    pip(python, "install", "--no-deps", "--target", site, wheel)
    install_inside(site)


def install_inside(site: Path) -> None:
    """Puts the witness and the slow connector into `site`; the witness as a plug-in of vLLM."""
    site.mkdir(parents=True, exist_ok=True)
    for module in INSIDE.glob("*.py"):
        shutil.copy(module, site)
    information = site / "step_witness-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA)
    (information / "entry_points.txt").write_text(ENTRY_POINTS)


def would_install(python: Path, wheel: Path) -> list[str]:
    """Returns the distributions that pip would install or change for the wheel."""
    report: dict[str, Any] = json.loads(
        pip(python, "install", "--dry-run", "--quiet", "--report", "-", wheel)
    )
    return [item["metadata"]["name"] for item in report["install"]]


def pip(python: Path, *arguments: str | Path) -> str:
    """Runs a vLLM's pip and returns what it printed."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
