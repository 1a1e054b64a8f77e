"""One recorded incident for all tests of questions and answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.store import Log, open_log
from tests.telemetry.recorded_run import record


@pytest.fixture(scope="session")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the recorded incident's log."""
    return record(tmp_path_factory.mktemp("incident") / "log")


@pytest.fixture(scope="session")
def log(incident: Path) -> Iterator[Log]:
    with open_log(incident) as opened:
        yield opened
