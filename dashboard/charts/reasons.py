"""The panel of admission: why it ended, a lane a reason."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import length_words, y_axis
from dashboard.charts.canvas import Canvas
from dashboard.charts.marks import Label
from telemetry.vocabulary import StopReason

LANE = 16
"""Pixels of a lane, with the space under it."""
BAR = 13


def stops(
    canvas: Canvas, runs: pd.DataFrame, totals: pd.DataFrame, *, share_of: int | None
) -> alt.LayerChart:
    """Returns one lane for each StopReason that occurred, most frequent first.

    Args:
        canvas: what all panels share.
        runs: `x`, `x2`, `stop_reason`, and `share` (0 to 1) where stretches are drawn.
        totals: `stop_reason`, `num_steps`, most frequent first.
        share_of: length of the stretches in ns; None where every run is drawn.
    """
    theme = canvas.theme
    reasons = totals["stop_reason"].tolist()
    num_steps = int(totals["num_steps"].sum())
    height = LANE * max(len(reasons), 1)
    title = "Why admission stopped, every step"
    if share_of is not None:
        title = f"Why admission stopped, share of steps per {length_words(share_of)}"
    labels = [
        Label(
            f"{reason} {100 * steps / num_steps:.1f} %",
            colours.text_colour(colours.of_reason(StopReason, reason, theme), theme),
            bold=index == 0 and reason != StopReason.queue_empty.name,
            y=LANE * index + BAR / 2,
        )
        for index, (reason, steps) in enumerate(
            zip(reasons, totals["num_steps"].tolist(), strict=True)
        )
    ]
    return canvas.panel(
        [_bars(canvas, runs, reasons)],
        under=[_grounds(canvas, len(reasons))],
        title=title,
        fact=f"one lane per reason that occurred; % of {num_steps:,} steps",
        labels=labels,
        height=height,
    )


def _grounds(canvas: Canvas, count: int) -> alt.Chart:
    rows = [{"x": 0.0, "x2": canvas.axis.length_ms, "lane": LANE * i} for i in range(count)]
    return (
        alt.Chart(pd.DataFrame(rows, columns=["x", "x2", "lane"]))
        .transform_calculate(foot=f"datum.lane + {BAR}")
        .mark_rect(color=colours.PANEL.of(canvas.theme))
        .encode(
            x=canvas.axis.x(),
            x2=alt.X2("x2:Q"),
            y=_lane("lane", canvas, count),
            y2=alt.Y2("foot:Q"),
        )
    )


def _bars(canvas: Canvas, runs: pd.DataFrame, reasons: list[str]) -> alt.Chart:
    theme = canvas.theme
    place = {reason: LANE * index for index, reason in enumerate(reasons)}
    frame = runs[runs["stop_reason"].isin(reasons)].copy()
    frame["x2"] = canvas.ends(frame)
    share = frame.get("share", 1.0)
    frame["foot"] = frame["stop_reason"].map(place).astype(float) + BAR
    frame["lane"] = frame["foot"] - BAR * share
    frame["colour"] = [colours.of_reason(StopReason, name, theme) for name in frame["stop_reason"]]
    return (
        alt.Chart(frame[["x", "x2", "lane", "foot", "stop_reason", "colour"]])
        .mark_rect()
        .encode(
            x=canvas.axis.x(),
            x2=alt.X2("x2:Q"),
            y=_lane("lane", canvas, len(reasons)),
            y2=alt.Y2("foot:Q"),
            color=alt.Color("colour:N", scale=None),
        )
    )


def _lane(field: str, canvas: Canvas, count: int) -> alt.Y:
    return alt.Y(
        f"{field}:Q",
        scale=alt.Scale(domain=[LANE * max(count, 1), 0], nice=False, reverse=False),
        axis=y_axis(canvas.theme, values=[]),
    )
