"""Recorder: whole, with a hole, from scrapes alone; counters, cost and what is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.axis import TimeAxis
from dashboard.charts.canvas import NO_GAPS, NO_STOPS, Canvas
from dashboard.charts.coverage import coverage
from dashboard.recorder_data import measure
from dashboard.recorder_words import agreement, cost_line, disk_line
from tests.dashboard import logs
from tests.dashboard.test_views import Show, charts, recorder, run, said, seen
from tests.diagnose import scrapes
from tests.telemetry.log_builder import START


def headline(test: AppTest) -> str:
    return str(next(m.value for m in test.markdown if m.value.startswith("### "))).replace("\\", "")


def counters(test: AppTest) -> dict[str, list[str]]:
    table = next(t.value for t in test.table if "verdict" in t.value)
    return {row["counter"]: [str(v) for v in row] for _, row in table.iterrows()}


# ----------------------------------------------------------------------------------- can I believe


def test_a_whole_record_says_so_with_its_numbers(storm_log: Path) -> None:
    test = seen(recorder, storm_log)
    assert headline(test).startswith("### The record is whole: 1,170 of 1,170 steps, 0 records")
    (chart,) = charts(test)
    marks = [layer["mark"] for layer in chart["vconcat"][0]["layer"]]
    assert not any(mark.get("shape") == "M-1,1L1,-1" for mark in marks)


def test_a_hole_makes_all_counts_lower_bounds(interrupted_log: Path) -> None:
    test = seen(recorder, interrupted_log)
    assert headline(test) == "### 10.3 % of steps are missing in 1 gap: counts are lower bounds."
    (chart,) = charts(test)
    assert any(layer["mark"].get("shape") == "M-1,1L1,-1" for layer in chart["vconcat"][0]["layer"])
    assert "60 steps in 1 gap(s)" in said(test)


def test_scrapes_alone_say_what_they_cannot_tell(scraped_log: Path) -> None:
    test = seen(recorder, scraped_log)
    assert headline(test) == "### No step is recorded: 8 scrapes are all there is."
    assert "cause, victim, beneficiary of a preemption" in str(
        [table.value.values.tolist() for table in test.table]
    )
    (chart,) = charts(test)
    assert len(chart["vconcat"]) == 1


def test_an_engine_without_a_recorder_has_nothing_to_compare(scraped_log: Path) -> None:
    found = counters(seen(recorder, scraped_log))
    assert found["preemptions"][1:4] == ["–", "–", "84"]


# ------------------------------------------------------------------------------------- the counters


def test_the_engine_s_own_counter_agrees(storm_log: Path) -> None:
    name, recorded, own, scraped, verdict = counters(seen(recorder, storm_log))["preemptions"]
    assert recorded == own != "0"
    assert (name, scraped) == ("preemptions", "–")
    assert verdict == ":green[✓] equal"


@pytest.mark.parametrize(
    ("recorded", "own", "scraped", "expected"),
    [
        (24, 24, None, "equal"),
        (24, None, 24, "equal"),
        (24, 26, None, "2 are not in the record"),
        (24, 20, None, "4 more recorded than the engine counts"),
        (24, 24, 18, "6 behind at the last scrape"),
        (24, None, 30, "6 scraped that are not in the record"),
        (24, None, None, "nobody else counts it"),
    ],
)
def test_a_counter_s_verdict(
    recorded: int, own: int | None, scraped: int | None, expected: str
) -> None:
    row = {"counter": "x", "recorded": recorded, "own": own, "scraped": scraped}
    assert expected in agreement(row, is_recorded=True).verdict


def test_nothing_recorded_is_no_zero() -> None:
    row = {"counter": "x", "recorded": 0, "own": None, "scraped": 7}
    assert agreement(row, is_recorded=False).recorded == "–"


# ------------------------------------------------------------------------------------------- cost


def test_the_cost_is_measured_when_it_is_asked_for(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(recorder)
    assert "not measured: what it cost while it was recorded" in said(test)
    test.button(key="measure-cost").click().run()
    assert not test.exception
    assert "of this engine's usual step" in said(test)


def test_more_requests_take_longer_to_write_down() -> None:
    few, many = measure(1, calls=300), measure(20_000, calls=300)
    assert 0 < few.p50_ns < many.p50_ns
    assert few.p50_ns <= few.p99_ns


def test_a_cost_is_said_with_its_share() -> None:
    said = cost_line(20_000, 50_000, 12, 4_000_000)
    assert said == (
        "**20 µs** ᵈ a step of 12 requests (p50; p99 50 µs), 0.5 % of this engine's usual step of "
        "4.0 ms"
    )


def test_bytes_a_step_need_steps() -> None:
    assert disk_line(2048, 0) == "2 KiB on disk"
    assert disk_line(2048, 2) == "2 KiB on disk, all of this log: 1 KiB a step"


# -------------------------------------------------------------------------------------- the lanes


def canvas(gaps: pd.DataFrame = NO_GAPS) -> Canvas:
    axis = TimeAxis(START, START + 10**10, "dark")
    return Canvas(axis=axis, stops=NO_STOPS, gaps=gaps, end=1e4)


def test_recorded_stretches_end_at_a_gap() -> None:
    gaps = pd.DataFrame([{"x": 4e3, "x2": 6e3, "num_missing": 7}])
    empty = pd.DataFrame({"source": [], "x": [], "x2": [], "num_scrapes": []})
    spec = coverage(canvas(gaps), (0.0, 1e4), empty, {"steps": "s"}).to_dict()
    stretches = [
        [(row["x"], row["x2"]) for row in rows]
        for rows in spec["datasets"].values()
        if rows and set(rows[0]) == {"x", "x2"}
    ]
    assert [(0.0, 4e3), (6e3, 1e4)] in stretches
    assert "not recorded" in json.dumps(spec)


def test_each_source_of_scrapes_has_its_lane() -> None:
    found = pd.DataFrame(
        [
            {"source": "prometheus", "x": 0.0, "x2": 1e3, "num_scrapes": 4},
            {"source": "prometheus", "x": 5e3, "x2": 9e3, "num_scrapes": 4},
            {"source": "vllm-log", "x": 0.0, "x2": 9e3, "num_scrapes": 2},
        ]
    )
    labels = {"steps": "s", "prometheus": "p", "vllm-log": "v"}
    told = json.dumps(coverage(canvas(), (0.0, 1e4), found, labels).to_dict())
    assert "Scrapes" in told
    assert "Log lines" in told
    assert "1 gap" in told


def test_a_pause_in_the_scrapes_is_a_gap(tmp_path: Path, show: Show) -> None:
    values = [*[8.0] * 6, *[None] * 20, *[8.0] * 6]
    show(logs.write_log(tmp_path / "pause", scrapes.scraped(running=values)))
    test = run(recorder)
    table = next(t.value for t in test.table if "longest pause" in t.value)
    assert table["gaps"].tolist() == ["1"]
