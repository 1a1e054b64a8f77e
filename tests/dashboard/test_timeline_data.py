"""The seven panels from a log: what is drawn, how much, and from which statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dashboard.queries.reduction import MAX_EXACT_STEPS, MAX_POINTS
from dashboard.session import Page, read_engines, whole_window
from dashboard.timeline_data import Timeline, build
from diagnose.diagnosis import diagnose
from telemetry.store import open_log
from telemetry.vocabulary import StopReason
from tests.dashboard import logs
from tests.telemetry.log_builder import LogBuilder

PANELS = (
    "Requests arriving and finishing",
    "Preemptions by cause",
    "KV blocks",
    "Free blocks",
    "Requests running, and waiting by reason",
    "Why admission stopped",
    "Token work",
)


@contextmanager
def opened(path: Path) -> Iterator[Page]:
    """A page without a browser."""
    with open_log(path) as log:
        engines = read_engines(log)
        yield Page(
            log=log,
            path=path,
            name=None,
            is_live=True,  # ask each time: nothing is cached beyond a test
            is_pinned=True,
            is_lost=False,
            engines=engines,
            engine=engines[0],
            scope=whole_window(engines[0], live=False),
            theme="dark",
            width=1384,
            effort="none",
        )


def drawn(path: Path) -> tuple[Timeline, dict[str, Any]]:
    with opened(path) as page:
        timeline = build(page, diagnose(page.log).engines[0])
        return timeline, timeline.chart.to_dict()


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More steps than can be drawn one by one, all states changing all the time."""
    log = LogBuilder().described()
    for step in range(MAX_EXACT_STEPS + 500):
        log.step(
            num_running=step % 7,
            num_waiting=step % 3,
            num_admitted=0,
            num_resumed=0,
            num_scheduled_tokens=10,
            num_blocks_running=step % 50,
            num_blocks_waiting=step % 5,
            num_blocks_finished=step % 2,
            num_blocks_deferred_free=0,
            num_blocks_free_cached=step % 3,
            num_blocks_free_unhashed=step % 4,
            stop_reason=StopReason.kv_blocks_chunk if step % 3 else StopReason.queue_empty,
            head_request=0 if step % 3 else None,
            head_blocks_needed=step % 4 if step % 3 else None,
        )
    return logs.write_log(tmp_path_factory.mktemp("long"), log)


def test_every_panel_has_its_statement(storm_log: Path) -> None:
    timeline, _ = drawn(storm_log)
    assert set(PANELS) <= set(timeline.statements)


def test_a_storm_is_drawn_change_by_change(storm_log: Path) -> None:
    timeline, _ = drawn(storm_log)
    assert "lag(" in timeline.statements["KV blocks"]
    assert "lag(" in timeline.statements["Why admission stopped"]


def test_a_long_log_is_averaged_over_stretches_and_says_so(long_log: Path) -> None:
    timeline, spec = drawn(long_log)
    words = {r["text"] for rows in spec["datasets"].values() for r in rows if "text" in r}
    assert "avg(" in timeline.statements["KV blocks"]
    assert any(word.startswith("KV blocks, mean per") for word in words)
    assert any(word.startswith("Why admission stopped, share of steps per") for word in words)


@pytest.mark.parametrize("log", ["storm_log", "interrupted_log", "long_log"])
def test_no_chart_has_more_points_than_it_may(log: str, request: pytest.FixtureRequest) -> None:
    _, spec = drawn(request.getfixturevalue(log))
    assert max(len(rows) for rows in spec["datasets"].values()) <= MAX_POINTS


def test_a_gap_is_in_every_layered_panel(interrupted_log: Path) -> None:
    _, spec = drawn(interrupted_log)
    for panel in spec["vconcat"][1:7]:
        assert "M-1,1L1,-1" in [layer["mark"].get("shape") for layer in panel["layer"]]


def test_what_a_source_does_not_record_is_not_drawn_as_zero(tmp_path: Path) -> None:
    log = LogBuilder().described(num_usable_blocks=None).arrived(0)
    for _ in range(3):
        log.step(num_running=1, num_waiting=0)
    _, spec = drawn(logs.write_log(tmp_path / "sparse", log))
    words = {r["text"] for rows in spec["datasets"].values() for r in rows if "text" in r}
    missing = {word for word in words if word.startswith("– not measured")}
    assert len(missing) == 4
    assert any("steps.stop_reason" in word for word in missing)
