"""Every page on a log that holds scrapes alone: what they tell, and that no steps are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard import logs
from tests.dashboard.test_views import PAGES, Show, charts, overview, preemptions, run, said, seen
from tests.diagnose import scrapes


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_that_there_is_no_step_record(page, scraped_log: Path) -> None:
    test = seen(page, scraped_log)
    assert "Not measured: no step record" in said(test)
    assert "from 8 scrapes alone" in said(test)
    assert charts(test) == []


def test_the_overview_gives_the_verdict_of_the_scrapes(scraped_log: Path) -> None:
    test = seen(overview, scraped_log)
    headlines = [m.value for m in test.markdown if m.value.startswith("###")]
    assert "84 preemptions were counted for 70 requests that ended" in headlines[0]
    assert "▲ HIGH" in said(test)


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
