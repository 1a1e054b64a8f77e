"""What is shown and kept of a chart is what Altair, which checks it, and Streamlit make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import streamlit as st
from altair.utils import schemapi
from streamlit.testing.v1 import AppTest

from dashboard import drawing, replays, session, vega
from dashboard.session import Page
from dashboard.timeline_data import build
from dashboard.views import preemptions as preemptions_page
from diagnose.reading import NS
from tests.dashboard import logs
from tests.dashboard.test_findings_page import finding_of, findings
from tests.dashboard.test_views import overview, preemptions, recorder, requests, run, steps
from tests.dashboard.test_whatif_page import whatif
from tests.diagnose.scrapes import sample

Show = Callable[[Path], None]
DASHBOARD = Path(vega.__file__).parent


def both_ways() -> None:
    import streamlit as st

    from dashboard import drawing, session, timeline_data

    page = session.open_page()
    assert page is not None
    engine = page.diagnosis()
    assert engine is not None
    st.altair_chart(timeline_data.build(page, engine).chart, width="content", theme=None)
    spec = drawing.timeline_of(page, engine).spec
    st.vega_lite_chart(spec=spec, width="content", theme=None)


@pytest.fixture
def page(storm_log: Path, show: Show) -> Page:
    show(storm_log)
    st.cache_data.clear()
    opened = session.open_page()
    assert opened is not None
    return opened


def without_names(proto: Any) -> tuple[Any, list[pa.Table]]:
    """Returns a chart with its tables numbered in the order in which it names them.

    They are read: equal tables need not have equal bytes, where one has lain in a cache.
    """
    tables = {
        table.name: pa.ipc.open_stream(table.data.data).read_all() for table in proto.datasets
    }
    used = list(dict.fromkeys(re.findall(r'"data": \{"name": "([^"]+)"\}', proto.spec)))
    assert set(used) == set(tables)
    spec = proto.spec
    for number, name in enumerate(used):
        spec = spec.replace(name, f"table {number}")
    return json.loads(spec), [tables[name] for name in used]


def shown(test: AppTest) -> list[Any]:
    """Charts as they go to the browser, with the selections that come back."""
    protos = [chart.proto for chart in test.get("vega_lite_chart")]
    return [(*without_names(proto), list(proto.selection_mode)) for proto in protos]


def by_altair(chart: Any, *, key: str, selections: Sequence[str] = ()) -> Mapping[str, Any]:
    """Shows a chart as `vega.show` does, but held against Vega-Lite's schema."""
    with schemapi.debug_mode(True):
        told: Any = st.altair_chart(
            chart,
            width="content",
            theme=None,
            key=key,
            on_select="rerun" if selections else "ignore",
            selection_mode=selections or None,
        )
    return told.selection if selections else {}


@pytest.fixture(scope="module")
def counted_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storm whose counter of preemptions somebody scraped."""
    builder = logs.storm(num_requests=40).builder()
    for number in range(3):
        sample(builder, "vllm:num_preemptions_total", 10 * number)
        builder.advance(NS)
    return logs.write_log(tmp_path_factory.mktemp("counted"), builder)


@pytest.mark.parametrize(
    ("page", "log", "parameters", "num_charts"),
    [
        (overview, "scraped_log", {}, 1),
        (findings, "scraped_log", {"finding": "the worst"}, 1),
        (preemptions, "storm_log", {}, 2),
        (preemptions, "counted_log", {}, 3),
        (requests, "storm_log", {"request": "3"}, 1),
        (requests, "interrupted_log", {"request": "3"}, 1),
        (steps, "dense_log", {"step": "1"}, 2),
        (recorder, "storm_log", {}, 1),
        (recorder, "interrupted_log", {}, 1),
        (recorder, "scraped_log", {}, 1),
        (whatif, "dense_log", {"set": "max_num_seqs:9"}, 4),
    ],
)
def test_every_chart_of_a_page_is_one_that_altair_lets_pass(
    page: Callable[[], None],
    log: str,
    parameters: dict[str, str],
    num_charts: int,
    request: pytest.FixtureRequest,
    show: Show,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = request.getfixturevalue(log)
    show(path)
    if "finding" in parameters:
        parameters = {"finding": finding_of(path).id}
    monkeypatch.setattr(replays, "SCAN_REPLAYS", 1)
    monkeypatch.setattr(replays, "NUM_REPLAYS", 2)
    ours = shown(run(page, **parameters))
    monkeypatch.setattr(vega, "show", by_altair)
    assert len(ours) == num_charts
    assert ours == shown(run(page, **parameters))


def test_many_preemptions_are_a_grid_that_altair_lets_pass(
    storm_log: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(storm_log)
    monkeypatch.setattr(preemptions_page, "MAX_MARKS", 5)
    ours = shown(run(preemptions))
    monkeypatch.setattr(vega, "show", by_altair)
    assert ours == shown(run(preemptions))
    assert [selections for *_, selections in ours] == [[], []]


def test_no_page_shows_a_chart_in_another_way() -> None:
    call = re.compile(r"\bst\.\w+_chart\(")
    calling = [path for path in DASHBOARD.rglob("*.py") if call.search(path.read_text())]
    assert calling == [DASHBOARD / "vega.py"]


@pytest.mark.parametrize("log", ["storm_log", "calm_log", "interrupted_log"])
def test_the_chart_and_its_tables_are_those_of_altair(
    log: str, request: pytest.FixtureRequest, show: Show
) -> None:
    show(request.getfixturevalue(log))
    test = AppTest.from_function(both_ways, default_timeout=60).run()
    assert not test.exception, [error.message for error in test.exception]
    altair, ours = (without_names(chart.proto) for chart in test.get("vega_lite_chart"))
    assert len(ours[1]) > 5
    assert ours == altair


def test_a_closed_log_is_drawn_once_for_each_theme_width_and_window(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Page] = []

    def counted(shown: Page, engine: Any) -> Any:
        drawn.append(shown)
        return build(shown, engine)

    monkeypatch.setattr(drawing, "build", counted)
    engine = page.diagnosis()
    assert engine is not None
    start, end = page.scope.start_ts, page.scope.end_ts
    half = replace(page.scope, end_ts=start + (end - start) // 2)
    views = [
        page,
        replace(page, theme="light" if page.theme == "dark" else "dark"),
        replace(page, width=page.width - 80),
        replace(page, scope=half),
    ]
    first = [drawing.timeline_of(view, engine) for view in views]
    assert drawn == views
    again = [drawing.timeline_of(view, engine) for view in views]
    assert drawn == views
    for kept, new in zip(again, first, strict=True):
        assert list(kept.spec["datasets"]) == list(new.spec["datasets"])  # named by their rows
        assert kept.spec | {"datasets": None} == new.spec | {"datasets": None}


def test_equal_rows_have_one_name_and_others_another() -> None:
    def names(*frames: pd.DataFrame) -> list[str]:
        import altair as alt

        charts = [alt.Chart(frame).mark_point().encode(x="x:Q") for frame in frames]
        return list(vega.spec_of(alt.vconcat(*charts))["datasets"])

    one, same, other = ({"x": [1, 2]}, {"x": [1, 2]}, {"x": [1, 3]})
    renamed = {"y": [1, 2]}
    assert len(names(*map(pd.DataFrame, (one, same)))) == 1
    assert len(names(*map(pd.DataFrame, (one, other, renamed)))) == 3


def test_a_chart_that_is_trusted_is_the_same_chart(page: Page) -> None:
    engine = page.diagnosis()
    assert engine is not None

    def drawn() -> str:
        st.cache_data.clear()
        spec = drawing.timeline_of(page, engine).spec
        text = json.dumps(spec | {"datasets": len(spec["datasets"])}, sort_keys=True)
        text = re.sub(r'"[0-9a-f]{16}"', '"a table"', text)
        return re.sub(r'"(view|param)_\d+', r'"\1', text)  # Altair counts on from chart to chart

    with schemapi.debug_mode(True):
        checked = drawn()
        vega.trust_charts()
        trusted = drawn()
    assert trusted == checked
