"""Every page on a full, a calm, an empty and an interrupted log, as Streamlit would run it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import address
from dashboard.source import ROOT_VARIABLE
from diagnose.words import engine_hex
from tests.dashboard import logs
from tests.telemetry.log_builder import START

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
Show = Callable[[Path], None]
CHANGES = (
    *("Burst of arrivals", "More arrivals", "Smaller pool", "Longer prompts", "Longer outputs"),
    *("Config change", "Priority churn", "Stuck loads", "Cache reset", "Oversized"),
    *("More adapters", "Prefix hit rate", "Concurrency", "Undetermined"),
)


def overview() -> None:
    from dashboard import app

    app.show_overview()


def preemptions() -> None:
    from dashboard import app

    app.show_preemptions()


def requests() -> None:
    from dashboard import app

    app.show_requests()


def steps() -> None:
    from dashboard import app

    app.show_steps()


def recorder() -> None:
    from dashboard import app

    app.show_recorder()


def sql() -> None:
    from dashboard import app

    app.show_sql()


PAGES = [overview, preemptions, requests, steps, recorder]


@cache
def seen(page: Callable[[], None], log: Path) -> AppTest:
    """One run of a page, for tests that only look."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(log))
        return run(page)


def run(page: Callable[[], None], **parameters: str) -> AppTest:
    """A run of a page of its own, for tests that click or change the address."""
    test = AppTest.from_function(page, default_timeout=60)
    for name, value in parameters.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception, [error.message for error in test.exception]
    return test


def said(test: AppTest) -> str:
    """Everything that the page says, without the escapes of markdown."""
    elements = [*test.markdown, *test.caption, *test.code]
    return "\n".join(str(element.value) for element in elements).replace("\\", "")


def charts(test: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in test.get("vega_lite_chart")]


# ------------------------------------------------------------------------------------ every state


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_log_says_so_and_draws_no_axes(page: Callable[[], None], empty_log: Path) -> None:
    test = seen(page, empty_log)
    assert "Nothing recorded yet." in said(test)
    assert charts(test) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_directory_without_a_log_says_so(
    page: Callable[[], None], tmp_path: Path, show: Show
) -> None:
    show(tmp_path / "nothing")
    assert "Nothing recorded yet." in said(run(page))


@pytest.mark.parametrize("page", PAGES)
def test_an_interrupted_log_says_when_the_engine_went(
    page: Callable[[], None], interrupted_log: Path
) -> None:
    test = seen(page, interrupted_log)
    assert "The engine stopped without saying goodbye." in said(test)


@pytest.mark.parametrize("page", PAGES)
def test_an_address_cannot_open_a_log_elsewhere(
    page: Callable[[], None], storm_log: Path, calm_log: Path, show: Show
) -> None:
    show(storm_log)
    test = run(page, log=f"../{calm_log.name}")
    assert "This log cannot be read" in said(test)
    assert charts(test) == []


@pytest.mark.parametrize("page", PAGES)
def test_nonsense_in_the_address_is_as_good_as_absent(
    page: Callable[[], None], storm_log: Path, show: Show
) -> None:
    show(storm_log)
    nonsense = dict.fromkeys(("engine", "from", "to", "request", "step"), "<script>")
    assert said(run(page, **nonsense)) == said(seen(page, storm_log))


# --------------------------------------------------------------------------------------- overview


def test_the_overview_says_the_cause_first(storm_log: Path) -> None:
    test = seen(overview, storm_log)
    headlines = [m.value for m in test.markdown if m.value.startswith("###")]
    assert headlines[0].startswith("### The KV pool holds 9 of these requests to their end;")
    assert "▲ HIGH" in said(test)


def test_the_overview_draws_seven_panels_and_the_readout(storm_log: Path) -> None:
    (chart,) = charts(seen(overview, storm_log))
    assert len(chart["vconcat"]) == 8
    assert {param["name"] for param in chart["params"]} == {"win", "cursor", "picked"}


def test_the_overview_shows_twelve_checks(storm_log: Path) -> None:
    strips = [
        h.proto.body for h in seen(overview, storm_log).get("html") if "checks" in h.proto.body
    ]
    assert strips[0].count("<b>") == 12


def test_a_calm_log_is_healthy(calm_log: Path) -> None:
    test = seen(overview, calm_log)
    assert "✓ HEALTHY" in said(test)
    assert "Nobody waited for the scheduler" in said(test)


def test_the_verdict_begins_with_what_is_missing(interrupted_log: Path) -> None:
    headline = next(
        m.value for m in seen(overview, interrupted_log).markdown if m.value.startswith("###")
    )
    assert "% of steps missing, counts are lower bounds" in headline.replace("\\", "")


def test_a_window_in_the_address_is_what_is_shown(storm_log: Path, show: Show) -> None:
    show(storm_log)
    start, end = START + 10**9, START + 2 * 10**9
    test = run(overview, **{"from": address.format_time(start), "to": address.format_time(end)})
    (chart,) = charts(test)
    domains = [
        layer["encoding"]["x"]["scale"]["domain"]
        for layer in chart["vconcat"][1]["layer"]
        if "scale" in layer.get("encoding", {}).get("x", {})
    ]
    assert domains[0] == [0, 1000.0]


def test_what_would_fix_it_names_a_flag(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(overview)
    test.button(key="fix").click().run()
    assert "--max-num-seqs 32 →" in said(test)


def test_the_report_is_the_finding_s_page(
    storm_log: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(storm_log)
    shown: list[str] = []
    monkeypatch.setattr("dashboard.links.show", lambda name, **own: shown.extend((name, *own)))
    run(overview).button(key="report").click().run()
    assert shown == ["findings", "finding"]


def test_every_panel_shows_its_sql(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(overview)
    test.button(key="sql-timeline").click().run()
    names = test.selectbox[0].options
    assert {"KV blocks", "Token work", "Preemptions by cause", "Readout"} <= set(names)
    assert "SELECT" in said(test)


# ------------------------------------------------------------------------------------ preemptions


def test_preemptions_are_accounted_for(storm_log: Path) -> None:
    text = said(seen(preemptions, storm_log))
    assert "all because the KV pool was full. Newer requests paid for older ones." in text
    assert "✓ equals the engine's own counter" in text


def test_preemptions_go_down_to_victims(storm_log: Path) -> None:
    test = seen(preemptions, storm_log)
    victims = test.table[0].value
    times = [int(told.strip("*")) for told in victims["times"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == 10
    assert len(charts(test)) == 2


def test_a_victim_leads_to_its_story(storm_log: Path) -> None:
    first = seen(preemptions, storm_log).table[0].value["request"].iloc[0]
    assert re.fullmatch(r"\[(\d+)\]\(\./requests\?request=\1&engine=\w{16}\)", first)


def test_more_victims_than_are_shown_are_counted(storm_log: Path) -> None:
    assert "Showing 10 of 58 requests, worst first" in said(seen(preemptions, storm_log))


def test_every_change_of_state_is_in_the_table(storm_log: Path) -> None:
    told = " ".join(seen(preemptions, storm_log).table[1].value["change"])
    assert all(change in told for change in CHANGES)


def test_without_preemptions_the_page_says_so(calm_log: Path) -> None:
    test = seen(preemptions, calm_log)
    assert "Nobody was preempted in this window." in said(test)
    assert charts(test) == []


# --------------------------------------------------------------------------------------- requests


def test_requests_are_listed_worst_first(storm_log: Path) -> None:
    test = seen(requests, storm_log)
    assert test.dataframe[0].value["times"].is_monotonic_decreasing
    assert "Showing 84 of 84 requests, worst first." in said(test)


def test_requests_are_found_by_id(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(requests)
    test.text_input(key="find").set_value("req-42").run()
    assert test.dataframe[0].value["request"].tolist() == [42]


def test_one_request_s_story_is_a_table(storm_log: Path, show: Show) -> None:
    show(storm_log)
    worst = int(seen(requests, storm_log).dataframe[0].value["request"].iloc[0])
    test = run(requests, request=str(worst))
    what = test.table[0].value["what"].tolist()
    assert what[0] == "**arrived**"
    assert what[-1] == "**finished**"
    assert "**preempted 1**" in what
    assert f"Request {worst} was evicted" in said(test)


def test_a_request_that_is_not_there_is_said_not_to_be(storm_log: Path, show: Show) -> None:
    show(storm_log)
    assert "There is no request 999,999" in said(run(requests, request="999999"))


def test_a_running_request_of_a_dead_engine_has_no_end(interrupted_log: Path, show: Show) -> None:
    show(interrupted_log)
    rows = seen(requests, interrupted_log).dataframe[0].value
    running = int(rows[rows["ended"] == "running"]["request"].iloc[0])
    what = run(requests, request=str(running)).table[0].value["what"].tolist()
    assert what[-1] == "**no end**"


# --------------------------------------------------------------------------- engines, hostile names


def test_the_engine_of_the_address_is_shown(tmp_path: Path, show: Show) -> None:
    older, newer = logs.calm().builder(), logs.storm().builder()
    for rows in newer.rows.values():
        for row in rows:
            row["engine"] = 99
            row.update({n: row[n] + 10**10 for n in ("ts", "updated_ts") if row.get(n)})
    show(logs.write_log(tmp_path / "two", older, newer))
    assert "▲ HIGH" in said(run(overview))
    assert "✓ HEALTHY" in said(run(overview, engine=engine_hex(logs.ENGINE)))


def test_names_from_outside_do_nothing(tmp_path: Path, show: Show) -> None:
    builder = logs.storm(num_requests=30).builder()
    hostile = '<img src=x onerror="alert(1)"> [x](javascript:alert(1)) **b** :red[r] $x$'
    for row in builder.rows["request_arrivals"]:
        row["request_id"] = hostile
    builder.rows["engines"][0]["model"] = hostile
    show(logs.write_log(tmp_path / "hostile", builder))
    told = (
        (overview, {}),
        (preemptions, {}),
        (requests, {"request": "0"}),
        (steps, {"step": "3"}),
        (recorder, {}),
    )
    for page, parameters in told:
        test = run(page, **parameters)
        shown = [str(m.value) for m in test.markdown] + [h.proto.body for h in test.get("html")]
        live = re.compile(r"(?<!\\)(<img|\]\(javascript|\*\*b\*\*|:red\[|\$x\$)")
        assert [text for text in shown if live.search(text)] == []


def test_the_router_leads_to_the_overview(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not test.exception
    assert "The KV pool holds 9" in said(test)
