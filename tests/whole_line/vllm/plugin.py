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
SOURCE = ("pyproject.toml", "README.md", "LICENSE", "stepscope.py", "stepscope_vllm.py")
PACKAGES = ("dashboard", "diagnose", "engine", "telemetry")
INSIDE = Path(__file__).with_name("inside")


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
    """Installs the wheel into `site`, and beside it what tests and benchmarks have inside vLLM."""
    pip(python, "install", "--no-deps", "--target", site, wheel)
    shutil.copy(INSIDE / "slow_kv_connector.py", site)
    add_plugin(site, INSIDE / "step_witness.py", "step_witness")


def add_plugin(site: Path, module: Path, name: str) -> None:
    """Puts a module with a `register()` into `site`, as a general plug-in of vLLM."""
    shutil.copy(module, site / f"{name}.py")
    information = site / f"{name}-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    (information / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{name} = {name}:register\n"
    )


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
