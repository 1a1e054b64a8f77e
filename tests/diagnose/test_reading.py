"""A log that may hold what is asked again and again is judged as one that may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.diagnosis import diagnose
from diagnose.reading import HoldingLog, hold_views
from telemetry.sql.packed_log import opened
from telemetry.store import Log
from tests.diagnose.logs import log_of
from tests.telemetry.log_builder import LogBuilder

PACKED = Path(__file__).parents[1] / "data" / "step_logs"


class Plain:
    """A log that only answers."""

    def __init__(self, log: Log) -> None:
        self.query: Any = log.query


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_diagnosis_is_the_same(version: str) -> None:
    with opened(PACKED / f"{version}.tar.xz") as log:
        assert not isinstance(Plain(log), HoldingLog)
        plain = diagnose(Plain(log), effort="none")
        assert any(engine.accounting.num_rows for engine in plain.engines)
        assert diagnose(log, effort="none") == plain
        held = log.query(
            "SELECT database_name AS d FROM duckdb_tables() WHERE table_name = 'preemptions'"
        )
        assert held.column("d").to_pylist() == ["temp"]


def test_a_log_that_cannot_hold_is_left_alone() -> None:
    hold_views(log_of(LogBuilder()))
