"""A log directory of its own for each test of the whole line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.collector import stop_collector


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields an empty log directory with a ring directory of its own; ends its collector."""
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / "rings"))
    path = tmp_path / "log"
    path.mkdir()
    yield path
    stop_collector(path)
