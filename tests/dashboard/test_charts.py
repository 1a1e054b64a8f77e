"""Charts: frame in, specification out. Panels, colours, caps, gaps and the facts of Vega."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd
import pytest

from dashboard import colours
from dashboard.charts import load, memory, reasons, work
from dashboard.charts.axis import TimeAxis, length_words, tick_values
from dashboard.charts.canvas import NO_GAPS, Canvas
from dashboard.charts.evictions import MAP_HEIGHT, cost_bar, eviction_map
from dashboard.charts.marks import Label, close_runs, place_labels
from dashboard.charts.timeline import readouts, timeline
from dashboard.report.svg import to_svg
from diagnose.reading import NS
from tests.telemetry.log_builder import START

STOPS = pd.DataFrame({"x": [0.0, 500.0], "readout": ["one", "two"]})
EVENTS = pd.DataFrame({"x": [100.0], "kind": ["engine_started"]})
GAP = pd.DataFrame({"x": [400.0], "x2": [600.0], "num_missing": [152]})


def canvas(gaps: pd.DataFrame = NO_GAPS, theme: colours.Theme = "dark") -> Canvas:
    axis = TimeAxis(START, START + NS, theme, width=1000)
    return Canvas(axis=axis, stops=STOPS, gaps=gaps, end=900.0)


def data_of(spec: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = spec["datasets"][spec["layer"][layer]["data"]["name"]]
    return rows


def words_of(spec: dict[str, Any]) -> set[str]:
    return {row["text"] for rows in spec["datasets"].values() for row in rows if "text" in row}


# ------------------------------------------------------------------------------------------- axis


def labels_of(axis: TimeAxis) -> list[str]:
    """The time axis as it is drawn."""
    points = alt.Chart(pd.DataFrame({"x": [0.0]})).mark_point().encode(x=axis.x(labels=True))
    return re.findall(r">(\d\d:\d\d:\d\d(?:\.\d+)?)</text>", to_svg(points, prefix="a"))


@pytest.mark.parametrize("past", [0, 500_000, 83_588_600, 499_999_999, 999_999_999])
def test_a_tick_is_called_by_its_own_second(past: int) -> None:
    start = START - START % (10 * NS) + past
    axis = TimeAxis(start, start + 18 * NS, "dark")
    first = -(-past // (2 * NS)) * 2
    assert labels_of(axis) == [f"11:55:{10 + first + 2 * i:02d}" for i in range(len(axis.ticks()))]


def test_a_tick_below_a_second_has_its_milliseconds() -> None:
    start = START - START % NS + 83_588_600
    assert labels_of(TimeAxis(start, start + NS // 5, "dark"))[0].endswith(".100")


def test_ticks_are_round_times_of_day() -> None:
    axis = TimeAxis(START, START + 7 * NS, "dark")
    assert [(START / 1e6 + tick) % 1000 for tick in axis.ticks()] == [pytest.approx(0)] * 7


def test_one_label_is_drawn_for_a_window_without_length() -> None:
    assert TimeAxis(START, START, "dark").ticks() is not None


@pytest.mark.parametrize(
    ("ns", "said"), [(100_000_000, "100 ms"), (NS, "1 s"), (300 * NS, "5 min"), (2_500, "2.5 µs")]
)
def test_the_length_of_a_bin_has_no_needless_digits(ns: int, said: str) -> None:
    assert length_words(ns) == said


@pytest.mark.parametrize("top", [1, 7, 63, 1800, 12_345])
def test_ticks_of_a_count_stay_below_its_top(top: float) -> None:
    values = tick_values(top)
    assert values[0] == 0
    assert values[-1] <= top
    assert 2 <= len(values) <= 5


# ------------------------------------------------------------------------------------------- runs


def test_a_run_ends_where_the_record_does() -> None:
    runs = pd.DataFrame({"x": [0.0], "series": ["a"], "y": [3.0]})
    closed = close_runs(runs, 900.0, NO_GAPS, ["y"])
    assert closed[["x", "y"]].to_numpy().tolist() == [[0.0, 3.0], [900.0, 3.0]]


def test_a_gap_is_never_bridged() -> None:
    runs = pd.DataFrame({"x": [0.0, 600.0], "series": ["a", "a"], "y": [3.0, 4.0]})
    closed = close_runs(runs, 900.0, GAP, ["y"])
    assert closed["x"].tolist() == [0.0, 400.0, 400.0, 600.0, 900.0]
    assert closed["y"].isna().tolist() == [False, False, True, False, False]


def test_labels_never_lie_upon_each_other() -> None:
    placed = place_labels([Label("a", "#000000"), Label("b", "#000000", y=2)] * 3, 40)
    heights = [y for _, y in placed]
    assert all(later - earlier >= 15 for earlier, later in itertools.pairwise(heights))


# ----------------------------------------------------------------------------------------- panels


def blocks_panel(**options: Any) -> dict[str, Any]:
    runs = pd.DataFrame(
        {
            "x": [0.0, 0.0],
            "series": ["running", "cached"],
            "y": [0.0, 10.0],
            "y2": [10.0, 12.0],
        }
    )
    panel = memory.blocks(canvas(**options), runs, pool=63, block_size=32, fact="", mean_over=None)
    spec: dict[str, Any] = panel.to_dict()
    return spec


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_blocks_have_the_colours_of_their_theme(theme: colours.Theme) -> None:
    rows = data_of(blocks_panel(theme=theme), 0)
    tints = {row["series"]: row["colour"] for row in rows}
    assert tints == {
        "running": colours.USEFUL.of(theme),
        "cached": colours.CACHED.of(theme),
    }


def test_blocks_do_not_stack_twice() -> None:
    area = blocks_panel()["layer"][0]
    assert area["mark"]["interpolate"] == "step-after"
    assert area["encoding"]["y"]["stack"] is None


def test_a_gap_is_hatched_and_named() -> None:
    spec = blocks_panel(gaps=GAP)
    shapes = [layer["mark"].get("shape") for layer in spec["layer"]]
    assert "M-1,1L1,-1" in shapes
    assert {"not recorded", "152 steps dropped"} <= words_of(spec)


def test_without_a_gap_nothing_is_hatched() -> None:
    shapes = [layer["mark"].get("shape") for layer in blocks_panel()["layer"]]
    assert "M-1,1L1,-1" not in shapes


def test_the_shortage_between_free_and_needed_is_filled() -> None:
    runs = pd.DataFrame(
        {"x": [0.0, 100.0], "x2": [100.0, None], "free": [5.0, 1.0], "need": [None, 4.0]}
    )
    spec = memory.need(canvas(), runs, fact="", worst_over=None).to_dict()
    filled = {row["x"]: (row["free"], row["short"]) for row in data_of(spec, 0)}
    assert filled[0.0] == (5.0, 5.0)
    assert filled[100.0] == (1.0, 4.0)


def test_the_cut_of_the_axis_of_free_blocks_is_named() -> None:
    runs = pd.DataFrame({"x": [0.0], "x2": [None], "free": [2000.0], "need": [None]})
    spec = memory.need(canvas(), runs, fact="", worst_over=None).to_dict()
    assert "free (axis cut at 8)" in words_of(spec)
    assert max(row["free"] for row in data_of(spec, 0)) == 8.0


def test_those_behind_the_head_are_paler_in_its_colour() -> None:
    runs = pd.DataFrame(
        {
            "x": [0.0, 0.0, 0.0],
            "series": ["running", "max_num_seqs", "behind max_num_seqs"],
            "y": [0.0, 4.0, 5.0],
            "y2": [4.0, 5.0, 9.0],
        }
    )
    panel = load.running_and_waiting(canvas(), runs, max_num_seqs=4, mean_over=None)
    spec = panel.to_dict()
    rows = {row["series"]: row for row in data_of(spec, 0)}
    assert rows["max_num_seqs"]["colour"] == rows["behind max_num_seqs"]["colour"] == "#8F7BF2"
    assert rows["behind max_num_seqs"]["opacity"] < rows["max_num_seqs"]["opacity"] == 1
    assert {"max_num_seqs 4, reached", "waiting: max_num_seqs"} <= words_of(spec)


def test_each_reason_that_occurred_has_its_lane_most_frequent_first() -> None:
    runs = pd.DataFrame(
        {
            "x": [0.0, 100.0],
            "x2": [100.0, None],
            "stop_reason": ["queue_empty", "kv_blocks_chunk"],
        }
    )
    totals = pd.DataFrame({"stop_reason": ["kv_blocks_chunk", "queue_empty"], "num_steps": [3, 1]})
    panel = reasons.stops(canvas(), runs, totals, share_of=None)
    spec = panel.to_dict()
    lanes = {row["stop_reason"]: row["foot"] for row in data_of(spec, 1)}
    assert lanes["kv_blocks_chunk"] < lanes["queue_empty"]
    assert {"kv_blocks_chunk 75.0 %", "queue_empty 25.0 %"} <= words_of(spec)


def test_a_lane_of_stretches_is_as_high_as_its_share() -> None:
    runs = pd.DataFrame(
        {"x": [0.0], "x2": [100.0], "stop_reason": ["queue_empty"], "share": [0.25]}
    )
    totals = pd.DataFrame({"stop_reason": ["queue_empty"], "num_steps": [4]})
    spec = reasons.stops(canvas(), runs, totals, share_of=5 * NS).to_dict()
    bar = data_of(spec, 1)[0]
    assert bar["foot"] - bar["lane"] == pytest.approx(reasons.BAR * 0.25)
    assert "Why admission stopped, share of steps per 5 s" in words_of(spec)


def test_a_zero_is_printed_where_it_is_evidence() -> None:
    bars = pd.DataFrame({"x": [0.0], "cause": ["kv_full"], "n": [7]})
    panel = work.preemptions(canvas(), bars, totals={"kv_full": 7}, fact="", bin_ns=100_000_000)
    spec = panel.to_dict()
    assert {"kv_full 7", "priority 0", "cache_reset 0", "unattributed 0"} <= words_of(spec)
    assert "Preemptions by cause, per 100 ms" in words_of(spec)


def test_preemptions_of_no_known_cause_are_hatched() -> None:
    bars = pd.DataFrame({"x": [0.0], "cause": ["unattributed"], "n": [7]})
    panel = work.preemptions(
        canvas(), bars, totals={"unattributed": 7}, fact="", bin_ns=100_000_000
    )
    strokes = panel.to_dict()["layer"][1]
    assert strokes["mark"]["shape"] == "M-1,1L1,-1"
    assert data_of(panel.to_dict(), 1)


@pytest.mark.parametrize(("events", "is_higher"), [(None, False), (EVENTS, True)])
def test_bars_leave_room_for_the_names_of_events(
    events: pd.DataFrame | None, is_higher: bool
) -> None:
    bars = pd.DataFrame({"x": [0.0], "cause": ["kv_full"], "n": [7]})
    panel = work.preemptions(
        replace(canvas(), events=events), bars, totals={"kv_full": 7}, fact="", bin_ns=NS // 10
    ).to_dict()
    scales = [layer["encoding"].get("y", {}).get("scale") for layer in panel["layer"]]
    (top,) = {scale["domain"][1] for scale in scales if scale and "domain" in scale}
    assert (top > 7) is is_higher


def test_no_preemptions_are_no_error() -> None:
    bars = pd.DataFrame({"x": [], "cause": [], "n": []})
    assert work.preemptions(canvas(), bars, totals={}, fact="", bin_ns=NS).to_dict()["layer"]


def test_tokens_are_stacked_from_useful_up() -> None:
    bars = pd.DataFrame(
        {"x": [0.0], "useful": [60], "recomputed": [40], "rejected": [0], "padding": [0]}
    )
    spec = work.tokens(canvas(), bars, has_drafts=False, bin_ns=NS).to_dict()
    stacked = {row["series"]: (row["y"], row["y2"]) for row in data_of(spec, 0)}
    assert stacked == {"useful": (0, 60), "recomputed": (60, 100)}
    assert {"recomputed 40 40.0 %", "rejected drafts: no speculation"} <= words_of(spec)


def test_what_is_not_measured_keeps_its_place_and_names_what_is_missing() -> None:
    spec = canvas().silence("KV blocks", "steps.num_blocks_running", height=104).to_dict()
    assert spec["height"] == 104
    assert "– not measured: steps.num_blocks_running" in words_of(spec)


# --------------------------------------------------------------------------------- the whole chart


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    shared = canvas()
    marks = pd.DataFrame({"x": [0.0], "kind": ["arrived"], "request": [0]})
    first = load.arrivals(shared, marks, num_arrived=1, num_finished=0, bin_ns=None)
    bars = pd.DataFrame({"x": [0.0], "cause": ["kv_full"], "n": [7]})
    second = work.preemptions(shared, bars, totals={"kv_full": 7}, fact="", bin_ns=NS)
    spec: dict[str, Any] = timeline(shared, [first, second]).to_dict()
    return spec


def test_the_brush_lies_on_the_first_panel_alone_which_is_not_layered(
    whole: dict[str, Any],
) -> None:
    brush = next(param for param in whole["params"] if param["name"] == load.BRUSH)
    assert "layer" not in whole["vconcat"][0]
    assert brush["views"] == [whole["vconcat"][0]["name"]]


def test_the_cursor_listens_to_a_view_of_every_other_panel(whole: dict[str, Any]) -> None:
    cursor = next(param for param in whole["params"] if param["name"] == "cursor")
    named = {layer["name"] for layer in whole["vconcat"][1]["layer"] if "name" in layer}
    assert set(cursor["views"]) == named != set()


def test_layers_are_flat(whole: dict[str, Any]) -> None:
    for panel in whole["vconcat"]:
        assert all("layer" not in layer for layer in panel.get("layer", []))


def test_all_panels_share_one_scale_of_time(whole: dict[str, Any]) -> None:
    domains = {
        json.dumps(layer["encoding"]["x"]["scale"]["domain"])
        for panel in whole["vconcat"]
        for layer in panel.get("layer", [panel])
        if "scale" in layer.get("encoding", {}).get("x", {})
    }
    assert domains == {"[0, 1000.0]"}


def test_the_readout_says_a_dash_for_what_is_not_measured() -> None:
    row = {
        "x": 0.0,
        "step": 289,
        "ts": START,
        "duration_ns": 57_000_000,
        "num_running": 21,
        "num_waiting": 2,
        "num_blocks_free": 0,
        "head_blocks_needed": None,
        "stop_reason": "kv_blocks_chunk",
        "num_scheduled_tokens": 968,
        "num_recomputed_tokens": 254,
        "num_preempted": 0,
    }
    line = readouts(pd.DataFrame([row]), 63)["readout"].iloc[0]
    assert "step 289     57 ms     running 21     waiting 2     free 0 of 63" in line
    assert "head needs – blocks     stop kv_blocks_chunk     tokens 968, recomputed 254" in line


# -------------------------------------------------------------------------------- preemptions page


def test_who_evicted_itself_is_hollow() -> None:
    marks = pd.DataFrame(
        {
            "request": [5, 6],
            "beneficiary": [5, 1],
            "cause": ["kv_full", "kv_full"],
            "step": [1, 2],
            "time": ["", ""],
            "lost": [64, 96],
            "request_place": [5, 6],
            "beneficiary_place": [5, 1],
            "by_priority": [False, False],
        }
    )
    spec = eviction_map(marks, width=600, theme="dark", payers=(1, 1, 0)).to_dict()
    fills = {row["request"]: row["fill"] for row in data_of(spec, 1)}
    assert fills == {5: "transparent", 6: colours.EVICTED.dark}
    assert spec["height"] == MAP_HEIGHT
    assert "pays for a newer one. 0 of 2" in words_of(spec)


def test_the_bar_of_the_cost_adds_up() -> None:
    spec = cost_bar([("again", 70, "#E659B2"), ("cache", 30, "#B5CFEF")], width=500, theme="dark")
    rows = next(iter(spec.to_dict()["datasets"].values()))
    assert [(row["x"], row["x2"]) for row in rows] == [(0, 70), (70, 100)]


def test_charts_import_no_streamlit() -> None:
    program = (
        "import sys, dashboard.charts.timeline, dashboard.charts.evictions, dashboard.charts.load;"
        "sys.exit('streamlit' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
