"""The charts of one request: its statements, its panels, and the page that draws them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest

from dashboard import colours
from dashboard.charts import request_phases, request_story, request_tokens
from dashboard.charts.canvas import NO_GAPS, Canvas
from dashboard.charts.endings import Ending
from dashboard.charts.since_arrival import SinceArrival
from dashboard.queries import reduction
from dashboard.queries import request_story as queries
from dashboard.report.svg import to_svg
from diagnose.reading import NS, Scope
from telemetry.vocabulary import StopReason, WaitReason
from tests.dashboard import logs
from tests.dashboard.test_charts import STOPS, data_of, words_of
from tests.dashboard.test_views import Show, charts, requests, run, said, seen
from tests.diagnose.logs import MemoryLog, log_of
from tests.telemetry.log_builder import MS, START, LogBuilder

LATER = Scope(1, START, START + 3600 * NS)
NO_EVICTIONS = pd.DataFrame(columns=["x", "beneficiary", "cause", "lost"])


def canvas(theme: colours.Theme = "light", gaps: pd.DataFrame = NO_GAPS) -> Canvas:
    axis = SinceArrival(START, START + NS, theme, width=1000, arrived_ts=START + 100 * MS)
    return Canvas(axis=axis, stops=STOPS, gaps=gaps, end=900.0)


def points(*rows: tuple[float, str, int | None], skipped: int | None = None) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["x", "kind", "tokens"])
    return frame.assign(skipped_steps=skipped)


def evictions(*rows: tuple[float, int | None, int | None]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["x", "beneficiary", "lost"])
    return frame.assign(cause="kv_full")


def phase(name: str, x: float, x2: float, reason: str | None = None, **more: Any) -> dict[str, Any]:
    row = {"phase": name, "x": x, "x2": x2, "reason": reason, "usual_reason": None, "nth": 1}
    return {**row, "duration_ns": int((x2 - x) * MS), "num_all": 1, **more}


def lane(*rows: dict[str, Any], ending: Ending | None = None, **options: Any) -> dict[str, Any]:
    gone = options.pop("evictions", NO_EVICTIONS)
    spec: dict[str, Any] = request_phases.phases(
        canvas(**options), pd.DataFrame(rows), gone, request=7, ending=ending or Ending(900.0)
    ).to_dict()
    return spec


def tokens(frame: pd.DataFrame, ending: Ending | None = None, **options: Any) -> dict[str, Any]:
    gone = options.pop("evictions", NO_EVICTIONS)
    spec: dict[str, Any] = request_tokens.tokens(
        canvas(**options),
        frame,
        gone,
        num_prompt_tokens=64,
        fact="",
        ending=ending or Ending(900.0),
        under=[],
    ).to_dict()
    return spec


def shape_of(spec: dict[str, Any], shape: str) -> int:
    """Returns which layer draws points of a shape."""
    return next(i for i, m in enumerate(spec["layer"]) if m["mark"].get("shape") == shape)


def marks_of(spec: dict[str, Any]) -> list[str]:
    return [layer["mark"]["type"] for layer in spec["layer"]]


# ------------------------------------------------------------------------------------------- axis


def labels_of(length: int) -> list[str]:
    """The axis of a window of so many ns, whose request arrived a tenth later, as it is drawn."""
    axis = SinceArrival(START, START + length, "light", arrived_ts=START + length // 10)
    points = alt.Chart(pd.DataFrame({"x": [0.0]})).mark_point().encode(x=axis.x(labels=True))
    return re.findall(r">([−\d.,]+)</text>", to_svg(points, prefix="a"))


def test_a_short_story_counts_milliseconds() -> None:
    assert labels_of(2 * NS) == ["−200", "0", *(f"{n:,}" for n in range(200, 1801, 200))]


def test_a_long_story_counts_seconds() -> None:
    assert labels_of(240 * NS) == ["0", *(str(n) for n in range(30, 211, 30))]


def test_a_part_of_a_second_before_the_arrival_is_not_cut_to_nought() -> None:
    assert labels_of(6 * NS)[:3] == ["0", "1", "2"]
    assert labels_of(5 * NS)[:3] == ["−0.5", "0", "0.5"]


@pytest.mark.parametrize(("length", "unit"), [(NS, "milliseconds"), (60 * NS, "seconds")])
def test_the_axis_says_what_it_counts(length: int, unit: str) -> None:
    axis = SinceArrival(START, START + length, "light", arrived_ts=START)
    drawn = Canvas(axis=axis, stops=STOPS, gaps=NO_GAPS, end=900.0)
    assert request_story.axis_word(drawn).text.startswith(f"{unit} since the request arrived")


# ----------------------------------------------------------------------------------------- phases


def test_a_gap_is_named_below_the_lane_and_not_upon_it() -> None:
    gap = pd.DataFrame({"x": [400.0], "x2": [600.0], "num_missing": [152]})
    assert "not recorded" not in words_of(lane(phase("decode", 100, 900), gaps=gap))


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_wait_has_the_colour_of_its_reason(theme: colours.Theme) -> None:
    spec = lane(phase("queued", 100, 400, "max_num_seqs"), phase("decode", 400, 900), theme=theme)
    tints = {row["phase"]: (row["colour"], row["opacity"]) for row in data_of(spec, 0)}
    slots = colours.of_reason(WaitReason, "max_num_seqs", theme)
    assert tints == {"queued": (slots, 0.3), "decode": (colours.USEFUL.of(theme), 1.0)}


def test_who_waits_behind_the_head_has_the_colour_that_the_head_waits_for() -> None:
    waits = phase("queued", 100, 800, "behind_head", usual_reason="kv_blocks_whole_prompt")
    spec = lane(waits)
    kv = colours.of_reason(WaitReason, "kv_blocks_whole_prompt", "light")
    assert data_of(spec, 0)[0]["colour"] == kv
    assert "queued: behind kv_blocks_whole_prompt 700 ms" in words_of(spec)


def test_a_narrow_bar_has_no_text_and_a_wider_one_a_short_text() -> None:
    spec = lane(phase("decode", 100, 130), phase("preempted", 130, 220), phase("decode", 220, 900))
    assert {"out 90 ms", "decode 680 ms"} <= words_of(spec)
    assert "decode 30 ms" not in words_of(spec)
    assert "30 ms" not in words_of(spec)


def test_each_preemption_says_who_got_the_blocks_where_there_is_room() -> None:
    gone = evictions((200.0, 59, 64), (210.0, 60, 64), (400.0, 7, 64), (600.0, None, 64))
    spec = lane(phase("decode", 100, 900), evictions=gone)
    assert {"for 60", "for itself", "for –"} <= words_of(spec)
    assert "for 59" not in words_of(spec)
    mark = shape_of(spec, "triangle-down")
    assert next(row["to"] for row in data_of(spec, mark)) == "for 59"


def test_who_never_ended_has_a_torn_edge_and_who_did_has_none() -> None:
    bar = phase("decode", 100, 900)
    assert "area" not in marks_of(lane(bar))
    spec = lane(bar, ending=Ending(900.0, "no end is recorded", is_torn=True))
    assert {"area", "line"} <= set(marks_of(spec))
    assert "no end is recorded" in words_of(spec)


# ----------------------------------------------------------------------------------------- tokens

LIFE = points(
    (100.0, "admitted", 64),
    (300.0, "preempted", 80),
    (500.0, "resumed", 81),
    (900.0, "finished", 99),
)


def test_tokens_fall_to_nothing_at_a_preemption_and_the_line_stays() -> None:
    rows = data_of(tokens(LIFE), 0)
    at = {x: [(r["tokens"], r["high"]) for r in rows if r["x"] == x] for x in (300.0, 500.0)}
    assert at[300.0] == [(80, 80), (0, 80)]
    assert at[500.0] == [(0, 80), (81, 81)]


def test_what_was_lost_is_written_at_the_fall() -> None:
    assert "−80" in words_of(tokens(LIFE, evictions=evictions((300.0, 1, 80))))
    unknown = tokens(LIFE, evictions=evictions((300.0, 1, None)))
    assert not any(word.startswith("−") for word in words_of(unknown))


def test_what_is_known_at_its_turns_alone_is_straight_between_and_says_so() -> None:
    spec = tokens(LIFE)
    assert spec["layer"][0]["mark"]["interpolate"] == "linear"
    assert {"known at its turns,", "straight between them"} <= words_of(spec)


def test_what_each_step_tells_has_steps() -> None:
    spec = tokens(points((100.0, "step", 64), (900.0, "finished", 65), skipped=0))
    assert spec["layer"][0]["mark"]["interpolate"] == "step-after"
    assert "straight between them" not in words_of(spec)


def test_rows_of_some_steps_do_not_pass_for_all() -> None:
    spec = tokens(points((100.0, "step", 64), (900.0, "finished", 73), skipped=9))
    assert "known in some of its steps," in words_of(spec)


def test_what_came_after_the_last_that_is_known_is_no_zero() -> None:
    running = points((100.0, "admitted", 64))
    spec = tokens(running, Ending(900.0, "no end is recorded", is_torn=True))
    assert "M-1,1L1,-1" in [layer["mark"].get("shape") for layer in spec["layer"]]
    assert {"hatched: at least as many", "highest point reached ≥ 64"} <= words_of(spec)
    assert data_of(spec, 0)[-1]["x"] == 100.0


def test_a_gap_in_the_record_is_not_bridged() -> None:
    gap = pd.DataFrame({"x": [150.0], "x2": [250.0], "num_missing": [9]})
    spec = tokens(LIFE, gaps=gap)
    area = next(i for i, layer in enumerate(spec["layer"]) if layer["mark"]["type"] == "area")
    assert [r["tokens"] for r in data_of(spec, area) if r["x"] == 150.0] == [None]


# ------------------------------------------------------------------------------- axis and engine


def test_the_axis_counts_from_the_arrival() -> None:
    axis = canvas().axis
    assert axis.ticks()[0] == pytest.approx(0.0)  # 100 ms before the arrival
    assert 100.0 in axis.ticks()
    assert "datum.value - 100.0" in axis.axis(labels=True).labelExpr


def test_free_blocks_are_filled_and_the_need_is_a_line() -> None:
    runs = pd.DataFrame({"x": [0.0, 100.0], "x2": [100.0, None], "free": [5, 1], "need": [None, 4]})
    spec = request_story.free_blocks(canvas(), runs, worst_over=None, rules=[]).to_dict()
    assert marks_of(spec)[:2] == ["area", "rule"]
    assert [row["need"] for row in data_of(spec, 1)] == [4]
    assert {"needed by the queue head", "free"} <= words_of(spec)


# ------------------------------------------------------------------------------------- statements


@pytest.fixture(scope="module")
def storm() -> Any:
    return logs.storm(num_requests=40)


@pytest.fixture(scope="module")
def sparse(storm: Any) -> MemoryLog:
    return log_of(storm.builder())


@pytest.fixture(scope="module")
def dense(storm: Any) -> MemoryLog:
    return log_of(logs.dense_builder(storm))


def told(log: MemoryLog, request: int, engine: int = logs.ENGINE) -> list[dict[str, Any]]:
    scope = dataclasses.replace(LATER, engine=engine)
    rows: list[dict[str, Any]] = log.query(queries.tokens(scope, request)).to_pylist()
    return rows


def test_what_the_turns_tell_is_what_the_steps_tell(sparse: MemoryLog, dense: MemoryLog) -> None:
    num_compared = 0
    for request in range(40):
        steps = [row for row in told(dense, request) if row["kind"] == "step"]
        for turn in told(sparse, request):
            before = [row for row in steps if row["x"] <= turn["x"]]
            assert turn["tokens"] == before[-1]["tokens"], turn
            num_compared += 1
    assert num_compared > 200


def test_every_step_of_a_full_record_is_there(dense: MemoryLog, sparse: MemoryLog) -> None:
    for request in range(40):
        assert {row["skipped_steps"] for row in told(dense, request)} == {0}
        assert {row["skipped_steps"] for row in told(sparse, request)} == {None}


def test_a_sampled_record_says_how_much_it_skips(storm: Any) -> None:
    builder = logs.dense_builder(storm)
    rows = builder.rows["step_requests"]
    builder.rows["step_requests"] = [row for row in rows if row["step"] % 10 == 0]
    found = {row["skipped_steps"] for row in told(log_of(builder), 0)}
    assert found == {9}


def test_a_token_on_its_way_at_a_preemption_tells_nothing() -> None:
    log = LogBuilder().described().arrived(0)
    log.step().admitted(0, num_scheduled_tokens=16, num_hit_tokens=0).preempted(
        0, lost=16, beneficiary=1
    )
    log.first_token(0).step()
    assert [row["kind"] for row in told(log_of(log), 0, engine=1)] == ["admitted", "preempted"]


def test_a_long_life_keeps_within_the_points_of_a_panel() -> None:
    log = LogBuilder().described().arrived(0)
    for number in range(4000):
        log.step()
        row = {"step": number, "ts": log.rows["steps"][-1]["ts"], "slot": 0, "request": 0}
        log._add("step_requests", {**row, "num_computed_tokens": number, "num_scheduled_tokens": 1})
    rows = told(log_of(log), 0, engine=1)
    assert 1000 < len(rows) <= reduction.MAX_POINTS
    assert rows[-1]["tokens"] == 4000


def test_a_wait_without_a_resource_says_why_most_steps_let_nobody_in() -> None:
    log = LogBuilder().described().arrived(0).arrived(1)
    for reason in (
        StopReason.preempted_this_step,
        StopReason.max_num_seqs,
        StopReason.max_num_seqs,
    ):
        log.step(num_running=1, num_waiting=2, stop_reason=reason, head_request=0)
    row = log_of(log).query(queries.phases(LATER, 1)).to_pylist()[0]
    assert (row["reason"], row["usual_reason"]) == ("not_visited", "max_num_seqs")


# --------------------------------------------------------------------------------------- the page


def worst(log: Path) -> int:
    return int(seen(requests, log).dataframe[0].value["request"].iloc[0])


def test_one_request_has_four_panels_and_their_sql(storm_log: Path, show: Show) -> None:
    show(storm_log)
    number = worst(storm_log)
    test = run(requests, request=str(number))
    panels = charts(test)[0]["vconcat"]
    assert len(panels) == 6  # a legend, four panels, and the line that reads out
    assert len(test.get("vega_lite_chart")) == 1
    test.button(key="sql-story-chart").click().run()
    assert {"Its phases", "Its tokens", "The engine meanwhile", "Free blocks"} <= set(
        test.selectbox[0].options
    )


def test_every_request_of_a_dying_engine_is_drawn(interrupted_log: Path, show: Show) -> None:
    show(interrupted_log)
    listed = seen(requests, interrupted_log).dataframe[0].value
    running = listed[listed["ended"] == "running"]["request"]
    never_admitted = listed[listed["first_token_ms"].isna() & (listed["times"] == 0)]["request"]
    for number in {
        int(running.iloc[0]),
        int(never_admitted.iloc[-1]),
        int(listed["request"].min()),
    }:
        test = run(requests, request=str(number))
        assert len(charts(test)) == 1


def test_who_is_still_out_was_out_at_least_so_long(interrupted_log: Path, show: Show) -> None:
    show(interrupted_log)
    assert "#### ≥ 1" in said(run(requests, request="51"))
