"""What the record covers of a window: steps, scrapes, and hatched where there is none."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.canvas import Canvas
from dashboard.charts.marks import Label
from dashboard.charts.timeline import timeline
from diagnose.words import plural

HEIGHT = 44
THINNEST = 1.0
"""Pixels of the shortest stretch that is drawn."""


def coverage(
    canvas: Canvas,
    steps: tuple[float, float] | None,
    stretches: pd.DataFrame,
    labels: dict[str, str],
) -> Any:
    """Returns a lane of steps and a lane a source of scrapes.

    Args:
        canvas: with the gaps of the steps.
        steps: first and last moment of a step, ms since the window's start; None without any.
        stretches: `source`, `x`, `x2`, `num_scrapes`, a row a stretch without a gap.
        labels: what stands beside a lane: `steps`, and each source.
    """
    sources = [str(name) for name in stretches["source"].unique()] if len(stretches) else []
    lanes = [] if steps is None and sources else [_steps(canvas, steps, labels, last=not sources)]
    for index, source in enumerate(sources):
        own = stretches[stretches["source"] == source]
        lanes.append(_scrapes(canvas, own, source, labels, last=index == len(sources) - 1))
    return timeline(canvas, lanes, is_still=True)


def _steps(
    canvas: Canvas, steps: tuple[float, float] | None, labels: dict[str, str], *, last: bool
) -> alt.LayerChart:
    tint = colours.USEFUL.of(canvas.theme)
    rows = [] if steps is None else _between(steps, canvas.gaps)
    gaps = len(canvas.gaps)
    return canvas.panel(
        [_stretches(canvas, pd.DataFrame(rows, columns=["x", "x2"]), tint, last=last)],
        title="Steps recorded",
        fact=plural(gaps, "gap") if gaps else "no gap",
        labels=[Label(labels["steps"], tint, bold=True, y=HEIGHT / 2)],
        height=HEIGHT,
        last=last,
        more=canvas.event_words(),
    )


def _between(steps: tuple[float, float], gaps: pd.DataFrame) -> list[tuple[float, float]]:
    """Returns the stretches between the gaps."""
    left, end = steps
    parts = []
    for gap in gaps.sort_values("x").itertuples(index=False):
        parts.append((left, float(gap.x)))
        left = max(left, float(gap.x2))
    return [*parts, (left, end)]


def _scrapes(
    canvas: Canvas, own: pd.DataFrame, source: str, labels: dict[str, str], *, last: bool
) -> alt.LayerChart:
    tint = colours.HELD.of(canvas.theme)
    bare = Canvas(canvas.axis, canvas.stops, canvas.gaps.iloc[:0], canvas.end, canvas.events)
    return bare.panel(
        [_stretches(canvas, own, tint, last=last)],
        title="Scrapes" if source == "prometheus" else "Log lines",
        fact=plural(len(own) - 1, "gap") if len(own) > 1 else "no gap",
        labels=[Label(labels[source], tint, bold=True, y=HEIGHT / 2)],
        height=HEIGHT,
        last=last,
    )


def _stretches(canvas: Canvas, frame: pd.DataFrame, tint: str, *, last: bool) -> alt.Chart:
    thinnest = THINNEST * canvas.axis.length_ms / canvas.axis.width
    known = frame[["x", "x2"]].astype(float)
    known = known.assign(
        x2=known["x2"].where(known["x2"] - known["x"] > thinnest, known["x"] + thinnest)
    )
    return (
        alt.Chart(known)
        .mark_rect(color=tint, opacity=0.85)
        .encode(
            x=canvas.axis.x(labels=last),
            x2=alt.X2("x2:Q"),
            y=alt.YValue(12),
            y2=alt.Y2Value(HEIGHT - 6),
        )
    )
