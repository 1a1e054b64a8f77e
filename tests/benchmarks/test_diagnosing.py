"""The benchmark of all rules over a day, on a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.diagnosing import main
from diagnose.rules import RULES
from telemetry.sql.packed_log import unpack

PACKED = Path(__file__).parents[1] / "data" / "step_logs" / "v4.tar.xz"


def test_each_rule_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.mkdir()
    unpack(PACKED, log)
    assert main([str(log), "--copies", "2"]) == 0
    printed = capsys.readouterr().out
    assert f"all of {len(RULES) + 1}" in printed
    assert "MiB" in printed
