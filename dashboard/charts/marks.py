"""What every panel repeats: its title, its direct labels, the cursor, the gaps and the events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import TimeAxis

LINE = 15
"""Pixels between two labels."""
TITLE_Y = -9
CURSOR = "cursor"
"""Name of the one cursor of all panels but the first."""
PICKED = "picked"
"""Name of a click into any panel but the first."""
HATCH_PX = 8
"""Pixels between two strokes of a hatched stretch."""


@dataclass(frozen=True, slots=True)
class Label:
    """A direct label at the right of a panel; `y` is in pixels from its top, or None to follow."""

    text: str
    colour: str
    bold: bool = False
    y: float | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """A text at a place of the panel, in pixels."""

    x: float
    y: float
    text: str
    colour: str
    bold: bool = False
    align: str = "left"
    size: int = 12


def word_layer(words: Iterable[Word]) -> alt.Chart:
    """Returns all words of a panel as one layer, free of its scales."""
    rows = [
        {
            "px": word.x,
            "py": word.y,
            "text": word.text,
            "colour": word.colour,
            "weight": "bold" if word.bold else "normal",
            "align": word.align,
            "size": word.size,
        }
        for word in words
    ]
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_text(
            baseline="middle",
            x=alt.ExprRef("datum.px"),
            y=alt.ExprRef("datum.py"),
            align=alt.ExprRef("datum.align"),
            fontWeight=alt.ExprRef("datum.weight"),
            fontSize=alt.ExprRef("datum.size"),
            color=alt.ExprRef("datum.colour"),
        )
        .encode(text=alt.Text("text:N"))
    )


def panel_words(
    axis: TimeAxis, title: str, fact: str, labels: Iterable[Label], *, height: int
) -> list[Word]:
    """Returns a panel's title at the left, its fact at the right, its labels beside it."""
    theme = axis.theme
    return [
        Word(0, TITLE_Y, title, colours.TEXT.of(theme), bold=True, size=13),
        Word(axis.width, TITLE_Y, fact, colours.MUTED.of(theme), align="right"),
        *(
            Word(axis.width + 8, y, label.text, label.colour, bold=label.bold)
            for label, y in place_labels(labels, height)
        ),
    ]


def place_labels(labels: Iterable[Label], height: int) -> list[tuple[Label, float]]:
    """Puts labels where they want to be, or under each other, but never over each other."""
    placed: list[tuple[Label, float]] = []
    lowest = 6.0
    for label in labels:
        y = lowest if label.y is None else max(label.y, lowest)
        placed.append((label, y))
        lowest = y + LINE
    overhang = lowest - LINE - (height + 6)
    shift = min(max(overhang, 0.0), placed[0][1] if placed else 0.0)
    return [(label, y - shift) for label, y in placed]


def cursor_layers(axis: TimeAxis, stops: pd.DataFrame, x: alt.X, *, name: str) -> list[alt.Chart]:
    """Returns the invisible points that the cursor finds, and the rule that it draws.

    `name` is the points' view name: the cursor's parameter lists the views that it listens to.
    """
    points = (
        alt.Chart(stops, name=name)
        .mark_point(size=1, opacity=0, filled=True)
        .encode(x=x, y=alt.YValue(0), tooltip=alt.TooltipValue(None))
    )
    rule = (
        alt.Chart(stops)
        .mark_rule(strokeDash=[2, 3], color=colours.TEXT.of(axis.theme), opacity=0.8)
        .encode(x=x)
        .transform_filter(at_cursor())
    )
    return [points, rule]


def cursor(names: list[str]) -> alt.TopLevelSelectionParameter:
    """Returns the cursor's parameter: the nearest moment in any of the named views."""
    return alt.TopLevelSelectionParameter(
        name=CURSOR,
        select=alt.PointSelectionConfig(
            type="point", on="pointermove", nearest=True, fields=["x"], clear="pointerout"
        ),
        views=names,
    )


def picked(names: list[str]) -> alt.TopLevelSelectionParameter:
    """Returns the parameter of a click: the step nearest to it in any of the named views."""
    return alt.TopLevelSelectionParameter(
        name=PICKED,
        select=alt.PointSelectionConfig(
            type="point", on="click", nearest=True, fields=["step"], toggle=False
        ),
        views=names,
    )


def at_cursor() -> alt.ParameterPredicate:
    """Returns the filter that keeps the moment under the cursor, and nothing without one."""
    return alt.ParameterPredicate(param=CURSOR, empty=False)


def gap_layers(axis: TimeAxis, gaps: pd.DataFrame, x: alt.X, *, height: int) -> list[alt.Chart]:
    """Returns stretches without a record: hatched, never bridged."""
    if gaps.empty:
        return []
    theme = axis.theme
    ground = (
        alt.Chart(gaps)
        .mark_rect(color=colours.PANEL.of(theme), opacity=0.9)
        .encode(x=x, x2=alt.X2("x2:Q"), y=alt.YValue(0), y2=alt.Y2Value(height))
    )
    boxes = [
        (axis.pixel(gap.x), axis.pixel(gap.x2), 0.0, float(height))
        for gap in gaps.itertuples(index=False)
    ]
    return [ground, hatching(boxes, colours.MUTED.of(theme))]


def hatching(boxes: Iterable[tuple[float, float, float, float]], colour: str) -> alt.Chart:
    """Returns diagonal strokes that fill boxes (left, right, top, foot, in pixels)."""
    rows = [
        {"px": left + i * HATCH_PX + HATCH_PX / 2, "py": top + j * HATCH_PX + HATCH_PX / 2}
        for left, right, top, foot in boxes
        for i in range(int((right - left) // HATCH_PX))
        for j in range(int((foot - top) // HATCH_PX))
    ]
    return (
        alt.Chart(pd.DataFrame(rows, columns=["px", "py"]))
        .mark_point(
            shape="M-1,1L1,-1",
            size=HATCH_PX**2,
            stroke=colour,
            strokeWidth=0.8,
            opacity=0.55,
            filled=False,
            x=alt.ExprRef("datum.px"),
            y=alt.ExprRef("datum.py"),
        )
        .encode(tooltip=alt.TooltipValue(None))
    )


def close_runs(
    runs: pd.DataFrame, end: float, gaps: pd.DataFrame, values: list[str]
) -> pd.DataFrame:
    """Returns runs of states that reach up to `end` and stop at the edges of gaps.

    At each edge the last state is repeated and followed by nothing, which ends line and area.

    Args:
        runs: `x`, `series` and `values`, a row a change of state.
        end: where the newest state ends, in ms.
        gaps: `x`, `x2` of stretches without a record.
        values: columns of a state.
    """
    if runs.empty:
        return runs
    parts: list[Any] = [runs]
    for series, own in runs.groupby("series", sort=False):
        own = own.sort_values("x")
        for edge in sorted(gaps["x"].tolist()) if not gaps.empty else []:
            before = own[own["x"] <= edge]
            if before.empty:
                continue
            last = {name: before.iloc[-1][name] for name in values}
            parts.append(pd.DataFrame([{"x": edge, "series": series, **last}]))
            parts.append(pd.DataFrame([{"x": edge, "series": series, **dict.fromkeys(values)}]))
        last = {name: own.iloc[-1][name] for name in values}
        parts.append(pd.DataFrame([{"x": end, "series": series, **last}]))
    closed = pd.concat([part.astype(dict.fromkeys(values, float)) for part in parts])
    closed["order"] = range(len(closed))
    return closed.sort_values(["x", "order"], kind="stable").drop(columns="order")
