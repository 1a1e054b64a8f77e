"""The benchmark of the dashboard, on a minute and without a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.dashboard import main
from telemetry.sql.packed_log import unpack

PACKED = Path(__file__).parents[1] / "data" / "step_logs" / "v4.tar.xz"


def test_the_charts_of_each_page_are_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    unpack(PACKED, log)
    assert main([str(log), "--copies", "2", "--no-browser"]) == 0
    printed = capsys.readouterr().out
    for page in ("the verdict", "overview", "preemptions", "steps"):
        assert f"\n{page}" in printed
