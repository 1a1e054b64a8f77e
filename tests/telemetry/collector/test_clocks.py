"""Wall clocks are set while engines run: times stay on the engine's own, and so do the days."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from telemetry.store.files import day_of
from tests.telemetry.collector.builders import collecting, record, ring_for, rows

NS_PER_DAY = 86_400 * 1_000_000_000


@pytest.mark.parametrize("step_days", [-400, -2, 2, 400])
def test_a_wall_clock_that_is_set_moves_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_days: int
) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    true_time = time.time_ns
    with collecting(log) as collector:
        collector.drain()
        monkeypatch.setattr(time, "time_ns", lambda: true_time() + step_days * NS_PER_DAY)
        record(ring, 3, 6)
        collector._rings[ring.path].next_anchor = 0.0
        collector.drain()
    assert collector._watch.left_alone() == {}
    assert rows(log, "SELECT step FROM steps ORDER BY ts, step") == [(n,) for n in range(6)]
    assert {path.name for path in log.glob("*.duckdb")} <= {
        f"{day_of(true_time() - ago)}.duckdb" for ago in (0, 60 * 10**9)
    }
    [(drift,)] = rows(log, "SELECT arg_max(wall_ns - ts, ts) FROM clock_anchors")
    assert drift == pytest.approx(step_days * NS_PER_DAY, abs=NS_PER_DAY / 100)
    ring.close()
