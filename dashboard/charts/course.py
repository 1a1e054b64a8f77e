"""How a quantity goes with a setting: replays as a line with its band, the record as a diamond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import tick_values
from dashboard.charts.marks import Word, word_layer
from dashboard.charts.timeline import AUTOSIZE, configured
from dashboard.colours import Colour, Theme

HEIGHT = 190
HEADROOM = 1.18
SECONDS = ", s"
"""The unit of what can be less than one."""
TICK_PX = 26
"""Pixels between the labels of two values."""
EDGE_PX = 14
"""Pixels between the plot's edge and the first value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseLook:
    """How one of the small charts looks. `unit` is appended to a value at the pointer."""

    title: str
    fact: str
    colour: Colour
    width: int
    theme: Theme
    unit: str = ""
    is_quiet: bool = False
    """Grey: its numbers are withheld, and `fact` says why."""


def course_chart(
    points: pd.DataFrame,
    look: CourseLook,
    *,
    recorded: tuple[Any, float] | None,
    chosen: tuple[Any, str] | None,
) -> Any:
    """Returns one small chart.

    Args:
        points: `value`, `label`, `low`, `middle`, `high`, a row a value of the setting.
        look: how it looks.
        recorded: the recorded setting and what was measured under it.
        chosen: the chosen setting and what is predicted, in words.
    """
    is_number = pd.api.types.is_numeric_dtype(points["value"])
    top = (max([*points["high"], *([recorded[1]] if recorded else [])], default=0) or 1) * HEADROOM
    axes = _Axes(points, look, is_number=is_number, top=float(top))
    colour = (colours.MUTED if look.is_quiet else look.colour).of(look.theme)
    base = alt.Chart(points)
    layers = [
        base.mark_area(color=colour, opacity=0.22).encode(
            axes.x, axes.y("low"), y2=alt.Y2("high:Q")
        ),
        base.mark_line(color=colour, strokeWidth=2).encode(axes.x, axes.y("middle")),
        base.mark_point(color=colour, filled=True, size=42, opacity=1).encode(
            axes.x,
            axes.y("middle"),
            tooltip=[
                alt.Tooltip("label:N", title="value"),
                *(
                    alt.Tooltip(f"{name}:Q", format=",.4g", title=f"{told}{look.unit}")
                    for name, told in (
                        ("middle", "replayed"),
                        ("low", "lowest"),
                        ("high", "highest"),
                    )
                ),
            ],
        ),
        *_recorded(recorded, axes),
        *_chosen(chosen, axes),
        word_layer(_words(look)),
    ]
    chart = alt.layer(*layers).properties(width=look.width, height=HEIGHT, autosize=AUTOSIZE)
    return configured(chart, look.theme, {"left": 0, "top": 26, "right": 8, "bottom": 0})


class _Axes:
    """The two axes that every layer repeats."""

    def __init__(
        self, points: pd.DataFrame, look: CourseLook, *, is_number: bool, top: float
    ) -> None:
        self.look, self._kind, self._top = look, "Q" if is_number else "N", top
        values = list(points["value"])
        # Trap: a `format` is given the precision of the ticks' distance, and 64 is called 60.
        ticks: dict[str, Any] = (
            {"values": _apart(values, look.width), "labelExpr": "format(datum.value, ',.12~r')"}
            if is_number
            else {"labelAngle": 0}
        )
        self._axis = alt.Axis(
            grid=False,
            domainColor=colours.BORDER.of(look.theme),
            tickColor=colours.BORDER.of(look.theme),
            labelColor=colours.MUTED.of(look.theme),
            labelOverlap=True,
            title=None,
            **ticks,
        )
        self._x_scale = (
            alt.Scale(domain=[min(values), max(values)], nice=False, padding=EDGE_PX)
            if is_number
            else alt.Scale()
        )

    @property
    def x(self) -> alt.X:
        return alt.X(f"value:{self._kind}", axis=self._axis, scale=self._x_scale)

    def y(self, field: str) -> alt.Y:
        theme = self.look.theme
        axis = alt.Axis(
            tickCount=4,
            **self._whole_ticks(),
            domain=False,
            ticks=False,
            grid=True,
            gridColor=colours.GRID.of(theme),
            labelColor=colours.MUTED.of(theme),
            minExtent=44,
            maxExtent=44,
            title=None,
        )
        scale = alt.Scale(domain=[0, self._top], nice=False)
        return alt.Y(f"{field}:Q", axis=axis, scale=scale)

    def _whole_ticks(self) -> dict[str, Any]:
        """Returns the ticks of a count; those of seconds are the browser's."""
        if self.look.unit == SECONDS:
            return {}
        return {"values": tick_values(self._top), "labelExpr": "format(datum.value, ',')"}


def _apart(values: list[float], width: int) -> list[float]:
    """Returns the values that are labelled: first, last, and those between with room for a label.

    Args:
        values: in their order.
        width: pixels of the plot.
    """
    first, last = values[0], values[-1]
    scale = (width - 2 * EDGE_PX) / ((last - first) or 1)
    kept = [first]
    for value in values[1:-1]:
        if (value - kept[-1]) * scale >= TICK_PX and (last - value) * scale >= TICK_PX:
            kept.append(value)
    return [*kept, last] if last != first else kept


def _recorded(recorded: tuple[Any, float] | None, axes: _Axes) -> list[alt.Chart]:
    if recorded is None:
        return []
    row = pd.DataFrame([{"value": recorded[0], "middle": recorded[1]}])
    return [
        alt.Chart(row)
        .mark_point(
            shape="diamond",
            size=110,
            strokeWidth=2,
            color=colours.TEXT.of(axes.look.theme),
            opacity=1,
        )
        .encode(
            axes.x,
            axes.y("middle"),
            tooltip=alt.Tooltip("middle:Q", title="recorded", format=",.4g"),
        )
    ]


def _chosen(chosen: tuple[Any, str] | None, axes: _Axes) -> list[alt.Chart]:
    if chosen is None:
        return []
    row = pd.DataFrame([{"value": chosen[0], "text": chosen[1]}])
    colour = colours.LINK.of(axes.look.theme)
    base = alt.Chart(row).encode(axes.x)
    return [
        base.mark_rule(color=colour, strokeWidth=1.5),
        base.mark_text(
            color=colour, align="left", dx=6, y=8, fontSize=13, fontWeight="bold"
        ).encode(text=alt.Text("text:N")),
    ]


def _words(look: CourseLook) -> list[Word]:
    theme = look.theme
    return [
        Word(0, -14, look.title, colours.TEXT.of(theme), bold=True, size=13),
        Word(look.width, -14, look.fact, colours.MUTED.of(theme), align="right"),
    ]
