"""A scraped engine in three panels: requests, KV usage, preemptions counted. A point is a scrape.

Between two points nothing is known, so the lines are thin and the points are what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import TimeAxis, tick_values, y_axis
from dashboard.charts.marks import Label, panel_words, word_layer
from dashboard.charts.timeline import PADDING, SPACING, configured
from dashboard.colours import Colour

HEIGHT = 84
LOW = 56
FEW_POINTS = 120
"""Scrapes up to which each one is a point on its line."""


def scraped_load(rows: pd.DataFrame, axis: TimeAxis) -> Any:
    """Returns the panels; one whose series no scrape has says so.

    Args:
        rows: `x`, `running`, `waiting`, `used`, `preempted`; NaN where not measured.
        axis: the window.
    """
    panels = [_requests(rows, axis), _usage(rows, axis), _preempted(rows, axis)]
    return configured(alt.vconcat(*panels, spacing=SPACING, bounds="flush"), axis.theme, PADDING)


def _requests(rows: pd.DataFrame, axis: TimeAxis) -> alt.LayerChart:
    series = {"waiting": colours.UNATTRIBUTED, "running": colours.USEFUL}
    known = [name for name in series if rows[name].notna().any()]
    if not known:
        return _silence("Requests", axis, HEIGHT)
    top = float(max(rows[name].max() for name in known)) or 1.0
    lines = [layer for name in known for layer in _line(rows, name, series[name], axis, top)]
    theme = axis.theme
    tints = {name: colours.text_colour(series[name].of(theme), theme) for name in known}
    labels = [Label(name, tint, bold=True) for name, tint in tints.items()]
    most = ", ".join(f"{name} up to {rows[name].max():,.0f}" for name in known)
    return _panel(lines, axis, "Requests", most, labels, HEIGHT)


def _usage(rows: pd.DataFrame, axis: TimeAxis) -> alt.LayerChart:
    if not rows["used"].notna().any():
        return _silence("KV pool in use", axis, HEIGHT)
    percent = rows.assign(used=100 * rows["used"])
    lines = _line(percent, "used", colours.EVICTED, axis, 100.0)
    fact = f"at most {percent['used'].max():.1f} % at a scrape"
    labels = [Label("% of blocks", colours.EVICTED.of(axis.theme), bold=True)]
    return _panel(lines, axis, "KV pool in use", fact, labels, HEIGHT)


def _preempted(rows: pd.DataFrame, axis: TimeAxis) -> alt.LayerChart:
    title = "Preemptions counted"
    if not rows["preempted"].notna().any():
        return _silence(title, axis, LOW, last=True)
    top = float(rows["preempted"].max()) or 1.0
    bars = (
        alt.Chart(rows[rows["preempted"] > 0])
        .mark_rule(color=colours.EVICTED.of(axis.theme), strokeWidth=3)
        .encode(x=axis.x(labels=True), y=_y("preempted", axis, top), y2=alt.datum(0))
    )
    ground = _ground(axis, LOW, last=True)
    fact = f"{rows['preempted'].sum():,.0f}, none attributed: no step record"
    labels = [Label("since the scrape before", colours.EVICTED.of(axis.theme))]
    return _panel([ground, bars], axis, title, fact, labels, LOW)


def _line(
    rows: pd.DataFrame, name: str, colour: Colour, axis: TimeAxis, top: float
) -> list[alt.Chart]:
    base = alt.Chart(rows[["x", name]]).encode(x=axis.x(), y=_y(name, axis, top))
    line = base.mark_line(color=colour.of(axis.theme), strokeWidth=1, opacity=0.7)
    if len(rows) > FEW_POINTS:
        return [line]
    return [line, base.mark_point(color=colour.of(axis.theme), filled=True, size=18)]


def _y(name: str, axis: TimeAxis, top: float) -> alt.Y:
    scale = alt.Scale(domain=[0, top], nice=False)
    ticks = y_axis(axis.theme, values=tick_values(top, 3))
    return alt.Y(f"{name}:Q", scale=scale, axis=ticks, title=None)


def _ground(axis: TimeAxis, height: int, *, last: bool = False) -> alt.Chart:
    return (
        alt.Chart(pd.DataFrame([{"x": 0.0, "x2": axis.length_ms}]))
        .mark_rect(color=colours.PANEL.of(axis.theme))
        .encode(x=axis.x(labels=last), x2=alt.X2("x2:Q"), y=alt.YValue(0), y2=alt.Y2Value(height))
    )


def _panel(
    layers: Sequence[alt.Chart],
    axis: TimeAxis,
    title: str,
    fact: str,
    labels: Sequence[Label],
    height: int,
) -> alt.LayerChart:
    words = word_layer(panel_words(axis, title, fact, labels, height=height))
    return alt.layer(*layers, words).properties(width=axis.width, height=height)


def _silence(title: str, axis: TimeAxis, height: int, *, last: bool = False) -> alt.LayerChart:
    ground = _ground(axis, height, last=last)
    return _panel([ground], axis, title, "– not measured by this source", [], height)
