"""What-if on a storm, a calm run, scrapes and a record with a hole, as Streamlit would run it."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import added, replays, whatif_data, whatif_knob
from dashboard.charts.course import CourseLook, course_chart
from dashboard.colours import EVICTED
from dashboard.report.svg import to_svg
from dashboard.report.writing import markdown_report
from dashboard.views import whatif as view
from diagnose.diagnosis import diagnose
from diagnose.finding import Action
from diagnose.replay import read_workload
from diagnose.replay.measures import Quantity
from diagnose.replay.prediction import Replays, predict
from telemetry.store import open_log
from tests.dashboard import logs
from tests.dashboard.test_views import Show, charts, said

SLOTS = "max_num_seqs"
SECONDS = 300
"""A page's time limit: replays take long where other tests run beside them."""


def whatif() -> None:
    from dashboard import app

    app.show_whatif()


@pytest.fixture(scope="module")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storm of few requests: a page replays it many times."""
    storm = logs.storm(num_requests=30)
    return logs.write_log(tmp_path_factory.mktemp("small"), storm.builder())


@pytest.fixture(autouse=True)
def fewer_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "SCAN_REPLAYS", 1)
    monkeypatch.setattr(replays, "NUM_REPLAYS", 2)


def open_page(show: Show, log: Path, **parameters: str) -> AppTest:
    show(log)
    test = AppTest.from_function(whatif, default_timeout=SECONDS)
    for name, value in parameters.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception, [error.message for error in test.exception]
    return test


def headline(test: AppTest) -> str:
    found = [each.value for each in test.markdown if each.value.startswith("### ")]
    return str(found[0]).replace("\\", "")


def test_the_first_line_is_gain_then_price(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set=f"{SLOTS}:9")
    assert headline(test).startswith(f"### {SLOTS} 32 → 9 would avoid ")
    assert "The price: " in headline(test) or "No price shows" in headline(test)
    assert len(charts(test)) == len(whatif_data.CHARTED)
    assert "Can this replay be trusted?" in said(test)


def test_the_slider_writes_the_address(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set=f"{SLOTS}:9")
    slider = test.select_slider(key=f"whatif-value-{SLOTS}")
    other = next(value for value in slider.options if value not in ("9", "32"))
    slider.set_value(int(other)).run()
    assert not test.exception
    assert test.query_params["set"] == f"{SLOTS}:{other}"
    assert f"→ {other} " in headline(test)


@pytest.mark.parametrize(
    "text", ["max_num_seqs:-4", "max_num_seqs:x", "nonsense:3", "'); DROP", ""]
)
def test_an_address_that_cannot_be_read_is_as_good_as_absent(
    small_log: Path, show: Show, text: str
) -> None:
    assert headline(open_page(show, small_log, set=text)).startswith(f"### {SLOTS} 32 → ")


def test_clients_can_be_told_otherwise(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set=f"{SLOTS}:9")
    radio = test.radio(key="whatif-arrivals")
    other = next(value for value in radio.options if "as detected" not in value)
    radio.set_value({"requests arrive when they did": "open"}.get(other, "closed")).run()
    assert not test.exception
    assert test.query_params["arrivals"].partition(":")[0] in ("open", "closed")


def test_a_setting_with_words_for_values_has_a_choice(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set="enable_prefix_caching:off")
    assert headline(test).startswith("### enable_prefix_caching on → off ")


def dialog_codes(test: AppTest) -> list[str]:
    return [str(each.value) for each in test.code]


def test_the_change_can_be_copied_as_flags_and_undone(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set=f"{SLOTS}:9")
    test.button(key="whatif-flags").click().run()
    assert not test.exception
    assert dialog_codes(test)[-2:] == ["--max-num-seqs 9", "--max-num-seqs 32"]


def test_a_prediction_is_added_to_the_report_and_taken_out(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set=f"{SLOTS}:9")
    assert "in the report" not in said(test)
    test.button(key="whatif-report").click().run()
    assert not test.exception
    assert f"1 what-if in the report that Findings offers for download: {SLOTS} 32 → 9." in said(
        test
    )
    ((path, whatif),) = test.session_state[added.KEPT]
    assert path == str(small_log)
    with open_log(small_log) as log:
        found = diagnose(log, effort="none")
        report = markdown_report(log, found, found.findings[0].id, [whatif])
    assert "## What a change would do" in report
    assert headline(test).removeprefix("### ") in report.replace("\\", "")
    test.button(key="whatif-report").click().run()
    assert "in the report" not in said(test)


def test_another_value_is_another_what_if(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set=f"{SLOTS}:9")
    test.button(key="whatif-report").click().run()
    test.select_slider(key=f"whatif-value-{SLOTS}").set_value(6).run()
    test.button(key="whatif-report").click().run()
    assert "2 what-ifs in the report" in said(test)


def test_the_recorded_value_has_nothing_to_hand_on(small_log: Path, show: Show) -> None:
    test = open_page(show, small_log, set=f"{SLOTS}:9")
    test.select_slider(key=f"whatif-value-{SLOTS}").set_value(32).run()
    assert not {"whatif-flags", "whatif-report"} & {each.key for each in test.button}


def test_nothing_to_avoid_is_said(calm_log: Path, show: Show) -> None:
    test = open_page(show, calm_log)
    assert "No tried change removes half of the preemptions" in said(test)


def test_scrapes_cannot_be_replayed(scraped_log: Path, show: Show) -> None:
    test = open_page(show, scraped_log)
    assert headline(test) == "### This window cannot be replayed"
    assert "Not measured" in said(test)
    assert not charts(test)


def test_a_long_window_is_replayed_only_when_wanted(
    small_log: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whatif_knob, "MAX_STEPS", 10)
    test = open_page(show, small_log)
    assert "A shorter window is quicker." in said(test)
    assert not charts(test)
    test.toggle(key="whatif-long").set_value(True).run()
    assert charts(test)


def test_a_course_has_a_point_for_each_value_and_the_chosen_one(small_log: Path) -> None:
    with open_log(small_log) as log:
        workload = read_workload(log, logs.ENGINE)
    before = Replays.of(workload, 1)
    chosen = predict(workload, {SLOTS: 11}, num_replays=1, before=before)
    course = whatif_data.read_course(workload, SLOTS, before)
    points = whatif_data.points_of(course, "num_preemptions", chosen)
    assert list(points["value"]) == whatif_data.ordered([*course.values, 11])
    assert points["middle"].iloc[0] < points["middle"].iloc[-1]
    assert (points["low"] <= points["high"]).all()


def test_what_is_withheld_is_grey(small_log: Path) -> None:
    with open_log(small_log) as log:
        workload = read_workload(log, logs.ENGINE)
    before = Replays.of(workload, 1)
    chosen = predict(workload, {SLOTS: 11}, num_replays=1, before=before)
    course = whatif_data.Course(SLOTS, 32, (chosen,))
    points = whatif_data.points_of(course, "num_preemptions", chosen)
    pictures = [
        str(
            course_chart(
                points,
                CourseLook(
                    title="t", fact="f", colour=EVICTED, width=300, theme="light", is_quiet=quiet
                ),
                recorded=(32, 98.0),
                chosen=(11, "17"),
            ).to_dict()
        )
        for quiet in (False, True)
    ]
    assert EVICTED.light in pictures[0]
    assert EVICTED.light not in pictures[1]


def test_a_course_of_zeros_has_an_axis_that_can_be_read() -> None:
    points = pd.DataFrame({"value": [2, 64], "label": ["2", "64"]})
    points = points.assign(low=0.0, middle=0.0, high=0.0)
    look = CourseLook(title="t", fact="f", colour=EVICTED, width=300, theme="light")
    chart = course_chart(points, look, recorded=(64, 0.0), chosen=None).to_dict()
    assert chart["layer"][0]["encoding"]["y"]["scale"]["domain"][1] >= 1


LOOK = CourseLook(title="t", fact="f", colour=EVICTED, width=300, theme="light")


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 64], [64, 200, 1_234_567]])
def test_the_values_of_a_course_are_written_in_full_and_apart(values: list[int]) -> None:
    points = pd.DataFrame({"value": values, "label": [f"{value:,}" for value in values]})
    points = points.assign(low=5e3, middle=5e3, high=5e3)
    picture = to_svg(course_chart(points, LOOK, recorded=None, chosen=None), prefix="a")
    first, last = f">{values[0]}</text>", f">{values[-1]:,}</text>"
    assert first in picture
    assert last in picture
    assert ">2</text>" not in picture


def test_a_count_has_no_tick_between_whole_numbers() -> None:
    points = pd.DataFrame({"value": [2, 64], "label": ["2", "64"], "low": 0.0})
    points = points.assign(middle=0.0, high=0.0)
    chart = course_chart(points, LOOK, recorded=None, chosen=None)
    picture = to_svg(chart, prefix="a")
    assert ">1</text>" in picture
    assert not re.search(r">\d\.\d</text>", picture)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.234, "1.23 s"), (0.0397, "0.04 s"), (0.0004, "< 0.01 s"), (0.0, "0.00 s"), (None, "–")],
)
def test_the_times_of_a_column_are_in_one_unit(value: float | None, shown: str) -> None:
    quantity = Quantity(name="ttft_p95", label="first token p95", unit="s")
    assert view._amount(quantity, value) == shown


def test_what_cannot_be_replayed_has_no_knob(interrupted_log: Path, show: Show) -> None:
    test = open_page(show, interrupted_log)
    assert headline(test) == "### This window cannot be replayed"
    assert len(test.selectbox) == 0
    assert "`stepscope doctor`" in said(test)


def test_where_nothing_was_evicted_no_change_is_suggested(
    tmp_path_factory: pytest.TempPathFactory, show: Show
) -> None:
    calm = logs.storm(num_requests=12, num_clients=4, num_gpu_blocks=2048)
    log = logs.write_log(tmp_path_factory.mktemp("calm"), calm.builder())
    test = open_page(show, log)
    assert headline(test) == f"### {SLOTS} stays at 32: choose another value"


@pytest.mark.parametrize(
    ("flag", "new", "address"),
    [
        ("--max-num-seqs", "11", "max_num_seqs:11"),
        ("--num-gpu-blocks-override", "1,393", "num_gpu_blocks:1393"),
        ("--no-such-flag", "1", None),
        (None, None, None),
    ],
)
def test_an_action_leads_to_its_replay(
    flag: str | None, new: str | None, address: str | None
) -> None:
    action = Action(
        what="w", flag=flag, old="1", new=new, applies="restart", trade_off="t", verify="v",
        revert="r",
    )  # fmt: skip
    assert whatif_data.address_of_action(action) == address
