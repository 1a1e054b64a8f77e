"""The engine's side of the record needs numpy alone."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("duckdb", "pyarrow", "torch", "streamlit", "rich", "opentelemetry", "pandas")


def test_ring_and_commands_load_nothing_heavy() -> None:
    code = (
        "import sys, telemetry.ring, telemetry.commands, telemetry.errors; "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
