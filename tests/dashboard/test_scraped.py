"""Every page on a log that holds scrapes alone: what they tell, and that no steps are recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from dashboard.charts.axis import TimeAxis
from dashboard.charts.scrapes import scraped_load
from tests.dashboard import logs
from tests.dashboard.test_views import (
    PAGES,
    Show,
    charts,
    overview,
    preemptions,
    recorder,
    run,
    said,
    seen,
)
from tests.diagnose import scrapes
from tests.telemetry.log_builder import START


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_that_there_is_no_step_record(page, scraped_log: Path) -> None:
    test = seen(page, scraped_log)
    assert "Not measured: no step record" in said(test)
    assert "from 8 scrapes alone" in said(test)


def test_the_overview_gives_the_verdict_of_the_scrapes(scraped_log: Path) -> None:
    test = seen(overview, scraped_log)
    headlines = [m.value for m in test.markdown if m.value.startswith("###")]
    assert "84 preemptions were counted for 70 requests that ended" in headlines[0]
    assert "▲ HIGH" in said(test)


def test_the_overview_counts_what_scrapes_cannot_judge_and_leads_to_it(scraped_log: Path) -> None:
    text = said(seen(overview, scraped_log))
    assert re.search(r"– \d+ rules cannot judge from this: \[which, .+\]\(\./findings\?", text)
    assert "encoder-budget-zero-progress" not in text


def test_the_overview_draws_what_each_scrape_said(scraped_log: Path) -> None:
    (chart,) = charts(seen(overview, scraped_log))
    assert len(chart["vconcat"]) == 3


def words_of(**columns: list[float | None]) -> str:
    """Everything that the chart of three scrapes says."""
    empty = ("running", "waiting", "used", "preempted")
    own: dict[str, list[float | None]] = {name: [None] * 3 for name in empty}
    rows = pd.DataFrame({"x": [0.0, 1e4, 2e4]} | own | columns).astype(float)
    axis = TimeAxis(START, START + 20 * scrapes.NS, "dark")
    return json.dumps(scraped_load(rows, axis).to_dict()["datasets"])


def test_a_panel_says_its_extremes() -> None:
    told = words_of(running=[8, 7, 8], waiting=[0, 12, 3], used=[0.5, 1, 0.9], preempted=[0, 2, 5])
    assert "waiting up to 12, running up to 8" in told
    assert "at most 100.0 % at a scrape" in told
    assert "7, none attributed: no step record" in told


def test_a_panel_that_no_scrape_fills_says_so() -> None:
    assert words_of(running=[8, 8, 8]).count("not measured by this source") == 2
    assert words_of().count("not measured by this source") == 3


def test_the_other_pages_draw_no_empty_axes(scraped_log: Path) -> None:
    others = [page for page in PAGES if page not in (overview, recorder)]
    assert [chart for page in others for chart in charts(seen(page, scraped_log))] == []


def test_preemptions_that_nothing_attributes_are_not_zero(scraped_log: Path) -> None:
    text = said(seen(preemptions, scraped_log))
    assert "84 preemptions counted, none attributed: no step record" in text
    assert "0 preemptions" not in text


def test_an_engine_without_a_fault_is_healthy_by_its_scrapes(tmp_path: Path, show: Show) -> None:
    show(logs.write_log(tmp_path / "calm", scrapes.calm()))
    text = said(run(overview))
    assert "✓ HEALTHY" in text
    assert "at most 8" in text
    assert "never under" not in text


def test_names_from_a_page_are_no_markup(tmp_path: Path, show: Show) -> None:
    model = {"model": "<img src=x onerror=alert(1)>[click](http://x)"}
    show(logs.write_log(tmp_path / "odd", scrapes.calm(settings=model)))
    test = run(overview)
    assert all("<img" not in str(item.proto.body) for item in test.get("html"))
