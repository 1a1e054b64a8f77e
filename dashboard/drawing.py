"""The timeline of overview and findings as it goes to the browser: a Vega-Lite chart, its tables.

To build seven panels takes longer than all else on the page. Of a closed log nothing changes from
one visitor to the next, so what was drawn once is kept, by the log's stamp, engine, window, theme
and width. Nothing is drawn here; `timeline_data` does.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st
from altair.utils import schemapi

from dashboard import source
from dashboard.session import Page
from dashboard.timeline_data import build
from diagnose.diagnosis import EngineDiagnosis

MAX_DRAWINGS = 24
"""Each takes 0.7 MB: a chart has a few thousand points."""
_PARTS = ("layer", "vconcat", "hconcat", "concat")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as Vega-Lite says it, its tables under `datasets`, and the statements behind it."""

    spec: dict[str, Any]
    statements: dict[str, str]


def timeline_of(page: Page, engine: EngineDiagnosis) -> Drawing:
    """Returns the panels of a page's window; those of a closed log are drawn once."""
    if page.is_live:
        return _draw(page, engine)
    scope, diagnosed = page.scope, engine.scope
    return _cached_drawing(
        str(page.path),
        source.stamp_of(page.path),
        (scope.engine, scope.start_ts, scope.end_ts),
        (diagnosed.start_ts, diagnosed.end_ts),
        page.theme,
        page.width,
        page,
        engine,
    )


@st.cache_data(show_spinner=False, max_entries=MAX_DRAWINGS)
def _cached_drawing(
    path: str,
    stamp: source.Stamp,
    window: tuple[int, int, int],
    diagnosed: tuple[int, int],
    theme: str,
    width: int,
    _page: Page,
    _engine: EngineDiagnosis,
) -> Drawing:
    return _draw(_page, _engine)


def _draw(page: Page, engine: EngineDiagnosis) -> Drawing:
    shown = build(page, engine)
    return Drawing(spec_of(shown.chart), shown.statements)


def spec_of(chart: Any) -> dict[str, Any]:
    """Returns a chart as Vega-Lite, each of its frames once under `datasets`; the chart is used up.

    The types of all columns have to be written in the chart: there is no frame left to guess from.
    It is not held against Vega-Lite's schema, which takes as long as to build it; tests do that.
    """
    frames: dict[str, pd.DataFrame] = {}
    _take_frames(chart, frames)
    spec: dict[str, Any] = chart.to_dict(validate=False)
    for default in ("continuousWidth", "continuousHeight"):  # of Altair's own theme
        spec.get("config", {}).get("view", {}).pop(default, None)
    return spec | {"datasets": frames}


def trust_charts() -> None:
    """Leaves out Altair's own checks in this process, of each part of a chart as it is made."""
    schemapi.disable_debug_mode()


def _take_frames(part: Any, frames: dict[str, pd.DataFrame]) -> None:
    """Puts a name in the place of each frame in a chart and the charts that it is made of."""
    data = getattr(part, "data", alt.Undefined)
    if isinstance(data, pd.DataFrame):
        name = _name_of(data)
        frames[name] = data
        part.data = alt.NamedData(name=name)
    for kind in _PARTS:
        inner = getattr(part, kind, alt.Undefined)
        for each in inner if isinstance(inner, list) else []:
            _take_frames(each, frames)


def _name_of(frame: pd.DataFrame) -> str:
    """Returns the same name for the same rows: the browser draws anew where it is another."""
    digest = hashlib.sha256(repr(list(frame.columns)).encode())
    digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    return digest.hexdigest()[:16]
