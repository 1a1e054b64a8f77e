"""Charts as Vega-Lite says them and pages show them: each table once, without Altair's checks.

To hold a chart against Vega-Lite's schema takes as long as to build it; tests do that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st
from altair.utils import schemapi

_PARTS = ("layer", "vconcat", "hconcat", "concat")


def show(chart: Any, *, key: str, selections: Sequence[str] = ()) -> Mapping[str, Any]:
    """Draws a chart, which is used up, as wide as it says; returns what is selected in it.

    Args:
        chart: Altair's, in the colours of its theme.
        key: of the element; where it stays the same, so does what is selected.
        selections: names of those whose change runs the page again; only they are returned.
    """
    return show_spec(spec_of(chart), key=key, selections=selections)


def show_spec(
    spec: dict[str, Any], *, key: str, selections: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Draws what `spec_of` made of a chart, as `show` does."""
    told: Any = st.vega_lite_chart(
        spec=spec,
        width="content",
        theme=None,
        key=key,
        on_select="rerun" if selections else "ignore",
        selection_mode=selections or None,
    )
    selected: Mapping[str, Any] = told.selection if selections else {}
    return selected


def spec_of(chart: Any) -> dict[str, Any]:
    """Returns a chart as Vega-Lite, each of its frames once under `datasets`; the chart is used up.

    The types of all columns have to be written in the chart: there is no frame left to guess from.
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
