"""Rooms stay apart at run time too."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "duckdb", "opentelemetry", "prometheus_client", "streamlit", "transformers")


def loaded_by(statement: str) -> set[str]:
    """Returns which heavy packages a fresh interpreter has loaded after a statement."""
    code = f"import sys; {statement}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "engine.scheduler",
        "engine.kv_cache",
        "engine.runner.scripted",
        "telemetry.recorder",
        "telemetry.ring",
    ],
)
def test_the_light_rooms_load_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}") == set()


def test_the_check_notices_a_heavy_import() -> None:
    assert loaded_by("import duckdb") == {"duckdb"}


def test_the_engine_knows_of_telemetry_the_leaves_alone() -> None:
    names = ("vocabulary", "records", "recorder", "content_hashes")
    leaves = {f"telemetry.{name}" for name in names}
    code = "import {0}; print(*[m for m in sys.modules if m.startswith('telemetry.')])"
    for room in ("engine.core", "engine.server.server", "engine.workload.replay"):
        result = subprocess.run(
            [sys.executable, "-c", "import sys; " + code.format(room)],
            check=True,
            capture_output=True,
            text=True,
        )
        assert set(result.stdout.split()) <= leaves, room
