"""The story of one request: four panels on one axis, from its arrival to its end.

Its phases (`request_phases`), its tokens in the KV cache (`request_tokens`), and of the engine
meanwhile who ran and waited, and the free blocks against those that the queue head needs. Each
preemption is a dotted rule through all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import length_words, y_axis
from dashboard.charts.canvas import Canvas
from dashboard.charts.marks import Label, Word
from dashboard.charts.memory import NEED_HEIGHT, cut_of
from dashboard.charts.since_arrival import SinceArrival
from dashboard.charts.timeline import READOUT_HEIGHT, timeline
from diagnose.words import time_of_day

HINT = "Point at a moment to read it, click below the phases to open its step."
FREE_TITLE = "Free KV blocks (filled) against the blocks the queue head needs (line)"
MEANWHILE_TITLE = "The engine meanwhile: requests running, and waiting by reason"
FREE_OPACITY = 0.6
PALENESS = 0.6
"""The engine is the background of this story: its areas are paler than on the overview."""


def story(canvas: Canvas, panels: Sequence[Any]) -> alt.VConcatChart:
    """Returns the panels under each other with one cursor, and the line that reads it out."""
    return timeline(canvas, panels, hint=HINT, below=READOUT_HEIGHT)


def eviction_rules(
    canvas: Canvas, evictions: pd.DataFrame, *, last: bool = False
) -> list[alt.Chart]:
    """Returns a dotted rule at each preemption, as high as the panel."""
    if evictions.empty:
        return []
    return [
        alt.Chart(pd.DataFrame({"x": evictions["x"].astype(float)}))
        .mark_rule(strokeDash=[2, 3], color=colours.EVICTED.of(canvas.theme))
        .encode(x=canvas.axis.x(labels=last))
    ]


def free_blocks(
    canvas: Canvas, runs: pd.DataFrame, *, worst_over: int | None, rules: Sequence[alt.Chart]
) -> alt.LayerChart:
    """Returns the free blocks as an area, and those that the queue head needs as a line.

    Args:
        canvas: what all panels share.
        runs: `x`, `x2`, `free`, `need` (missing where nobody needs any).
        worst_over: length of the stretches whose least free and largest need are drawn, in ns.
        rules: the preemptions.
    """
    theme = canvas.theme
    largest = float(runs["need"].max()) if runs["need"].notna().any() else 0.0
    cut = cut_of(largest)
    frame = runs.assign(series="free", free=runs["free"].astype(float).clip(upper=cut))
    scale = alt.Scale(domain=[0, cut], nice=False)
    axis = y_axis(theme, values=[0, round(cut / 2), round(cut)])
    x = canvas.axis.x(labels=True)
    area = (
        alt.Chart(canvas.closed(frame[["x", "series", "free"]], ["free"]))
        .mark_area(
            interpolate="step-after",
            color=colours.USEFUL.of(theme),
            opacity=FREE_OPACITY,
            clip=True,
        )
        .encode(x=x, y=alt.Y("free:Q", scale=scale, axis=axis, stack=None))
    )
    needs = frame.assign(x2=canvas.ends(frame), need=runs["need"].astype(float))
    line = (
        alt.Chart(needs.loc[needs["need"].notna(), ["x", "x2", "need"]])
        .mark_rule(strokeWidth=2, color=colours.EVICTED.of(theme), clip=True)
        .encode(x=x, x2=alt.X2("x2:Q"), y=alt.Y("need:Q", scale=scale, axis=axis))
    )
    needed = colours.text_colour(colours.EVICTED.of(theme), theme)
    free = f"free (axis cut at {cut:,.0f})" if bool((runs["free"] > cut).any()) else "free"
    return canvas.panel(
        [area, *rules, line],
        title=FREE_TITLE if worst_over is None else f"{FREE_TITLE}, {_worst(worst_over)}",
        fact="" if largest else "nobody at the head needed any",
        labels=[
            Label("needed by the queue head", needed, bold=True),
            Label(free, colours.USEFUL.of(theme), bold=True, y=38),
        ],
        height=NEED_HEIGHT,
        last=True,
        more=[axis_word(canvas)],
    )


def axis_word(canvas: Canvas) -> Word:
    """Returns what the x axis counts, below the last panel's labels."""
    counts, moment = "milliseconds", ""
    if isinstance(canvas.axis, SinceArrival):
        counts, moment = canvas.axis.counts, f", {time_of_day(canvas.axis.arrived_ts, 3)} UTC"
    said = f"{counts} since the request arrived{moment}"
    muted = colours.MUTED.of(canvas.theme)
    return Word(canvas.axis.width / 2, NEED_HEIGHT + 32, said, muted, align="center")


def _worst(ns: int) -> str:
    return f"worst per {length_words(ns)}"
