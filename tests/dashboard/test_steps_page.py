"""The step inspector on real logs: with dense rows, without them, and with a hole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.queries.steps import waiting_requests
from dashboard.step_words import waiting_line
from telemetry.sql.packed_log import unpack
from telemetry.store import open_log
from tests.dashboard import logs
from tests.dashboard.test_views import Show, charts, run, said, seen, steps

PACKED = Path(__file__).parents[1] / "data" / "step_logs" / "v4.tar.xz"
"""An engine's log at full detail: 24 preemptions by priority; step 276 has one of them."""
FULL_ENGINE = "00000000000000a1"


@pytest.fixture(scope="session")
def full_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("full")
    unpack(PACKED, directory)
    return directory


def inspect(show: Show, log: Path, number: int, **parameters: str) -> AppTest:
    show(log)
    return run(steps, step=str(number), **parameters)


def headline(test: AppTest) -> str:
    found = [m.value for m in test.markdown if m.value.startswith("### ")]
    return str(found[0]).replace("\\", "")


def keys(test: AppTest) -> dict[str, str]:
    return {button.key: button.label for button in test.button if button.key}


# --------------------------------------------------------------------------------------- the list


def test_without_a_number_the_steps_that_evicted_most_come_first(storm_log: Path) -> None:
    test = seen(steps, storm_log)
    evicted = test.dataframe[0].value["num_preempted"]
    assert evicted.is_monotonic_decreasing
    assert evicted.min() > 0
    assert "most evictions first" in said(test)


@pytest.mark.parametrize(
    ("kind", "column"), [("LONGEST", "took_ms"), ("NOTHING", None), ("SHORT", "head_blocks_needed")]
)
def test_other_kinds_are_a_choice(
    kind: str, column: str | None, storm_log: Path, show: Show
) -> None:
    from dashboard.queries.steps import Notable

    show(storm_log)
    test = run(steps)
    test.segmented_control(key="by").set_value(Notable[kind]).run()
    assert not test.exception
    if column is None:
        assert "Whenever somebody waited, something was scheduled." in said(test)
        return
    assert column in test.dataframe[0].value


def test_a_calm_log_says_that_nobody_was_evicted(calm_log: Path) -> None:
    assert "Nobody was evicted in this window." in said(seen(steps, calm_log))


def test_a_list_that_is_cut_says_so(storm_log: Path, show: Show, monkeypatch) -> None:
    from dashboard.queries import steps as queries

    show(storm_log)
    whole = queries.notable
    monkeypatch.setattr(queries, "notable", lambda scope, kind: whole(scope, kind, 5))
    assert "Showing 5 of " in said(run(steps))


# --------------------------------------------------------------------------------------- one step


def test_the_headline_is_arithmetic(full_log: Path, show: Show) -> None:
    test = inspect(show, full_log, 276, engine=FULL_ENGINE)
    assert headline(test) == (
        "### Step 276: 3 requests needed one more block each, 1 was free: "
        "1 was evicted to feed the other 2."
    )


def test_blocks_time_and_batch_are_shown(full_log: Path, show: Show) -> None:
    test = inspect(show, full_log, 276, engine=FULL_ENGINE)
    block_map, _ = charts(test)
    assert len(block_map["vconcat"]) == 2
    assert len(test.table) == 3
    assert test.dataframe[0].value["order"].is_monotonic_increasing


def test_evictions_are_told_in_order(full_log: Path, show: Show) -> None:
    table = inspect(show, full_log, 276, engine=FULL_ENGINE).table[0].value
    assert table["who asked"].tolist() == ["**3** needs 1 block, 0 free"]
    assert table["who paid"].tolist() == [":orange[▼] evicts **28**"]


def test_without_dense_rows_it_says_which_detail_would_keep_them(
    storm_log: Path, show: Show
) -> None:
    worst = int(seen(steps, storm_log).dataframe[0].value["step"].iloc[0])
    test = inspect(show, storm_log, worst)
    assert "Not measured: who held which blocks" in said(test)
    assert "--detail full" in said(test)
    assert charts(test) == [] or all("vconcat" not in chart for chart in charts(test))
    assert len(test.table[0].value) > 0


def test_one_goes_on_by_a_button(storm_log: Path, show: Show) -> None:
    test = inspect(show, storm_log, 0)
    shown = keys(test)
    assert shown["before"] == "‹ –"
    assert shown["after"] == "1 ›"
    assert shown["preemption"].startswith("next preemption: ")
    test.button(key="preemption").click().run()
    assert "evicted" in headline(test)


def test_the_next_stop_reason_is_another(storm_log: Path, show: Show) -> None:
    test = inspect(show, storm_log, 0)
    before = stop_of(test)
    test.button(key="stop_change").click().run()
    assert stop_of(test) != before


def stop_of(test: AppTest) -> str:
    line = next(m.value for m in test.markdown if "admission stopped:" in m.value)
    return str(line).split("admission stopped:")[1].split("&nbsp;")[0]


def test_a_step_in_a_gap_is_said_to_be_in_one(interrupted_log: Path, show: Show) -> None:
    first = len([1 for row in logs.storm().builder().rows["steps"]]) // 4
    test = inspect(show, interrupted_log, first + 10)
    assert "is not in the record" in headline(test)
    assert "It lies in a gap" in said(test)
    assert {"before", "after"} <= set(keys(test))


def test_a_step_that_was_never_run_says_which_there_are(storm_log: Path, show: Show) -> None:
    test = inspect(show, storm_log, 999_999)
    assert "is not in the log, which holds steps 0 to" in said(test)
    assert "after" not in keys(test)


def test_every_statement_behind_it_is_shown(full_log: Path, show: Show) -> None:
    test = inspect(show, full_log, 276, engine=FULL_ENGINE)
    test.button(key="sql-step").click().run()
    names = {"The step", "Requests in it", "Requests in it, the step before", "Who waits"}
    assert names <= set(test.selectbox[0].options)


def test_who_were_just_evicted_wait_with_that_eviction_counted(storm_log: Path) -> None:
    with open_log(storm_log) as log:
        (victim,) = log.query(
            "SELECT p.engine, p.request, s.step, s.ts FROM preemptions p "
            "JOIN steps s ON s.engine = p.engine AND s.step = p.step ORDER BY p.ts LIMIT 1"
        ).to_pylist()
        sql = waiting_requests(victim["engine"], victim["ts"], 200)
        times = {row["request"]: row["times"] for row in log.query(sql).to_pylist()}
    assert times[victim["request"]] == 1


def test_one_that_is_set_aside_is_told_as_one() -> None:
    facts = SimpleNamespace(step={"num_waiting": 1, "num_skipped_waiting": 1})
    assert waiting_line(facts) == "The one that waits is set aside (skipped)."  # type: ignore[arg-type]
