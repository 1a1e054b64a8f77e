"""The lane of one request's life: queued, prefill, decode, evicted and waiting, recompute."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.canvas import Canvas
from dashboard.charts.endings import Ending, torn
from dashboard.charts.marks import Word, word_layer
from dashboard.charts.request_words import (
    BAR_HEIGHT,
    MARKS_HEIGHT,
    SMALL_LETTER,
    WAITS,
    bar_words,
    ending_words,
    first_token,
    for_whom,
    mark_words,
)
from dashboard.colours import Theme
from diagnose.words import NOT_MEASURED, duration
from telemetry.vocabulary import WaitReason

HEIGHT = MARKS_HEIGHT + BAR_HEIGHT
LOAD_TOP = HEIGHT - 6
"""A load runs while its request waits: a strip at the foot of the bar."""
WAIT_OPACITY = 0.3
_NO_RESOURCE = ("behind_head", "not_visited")


def phases(
    canvas: Canvas, rows: pd.DataFrame, evictions: pd.DataFrame, *, request: int, ending: Ending
) -> alt.LayerChart:
    """Returns the lane, with a mark for each preemption and who got the blocks.

    Args:
        canvas: what all panels share.
        rows: `x`, `x2`, `phase`, `reason`, `usual_reason`, `duration_ns`, `nth`, `num_all`.
        evictions: `x`, `beneficiary` (missing where a cache was reset), `cause`, `lost`.
        request: its number.
        ending: how it ended, if it did.
    """
    bars = _bars(rows, canvas.theme)
    title = f"Phases of request {request:,}"
    cut = len(rows) and int(rows["num_all"].iloc[0]) - len(rows)
    fact = f"the first {len(rows):,} of {len(rows) + cut:,} stretches" if cut else ""
    if not evictions.empty and not fact:
        fact = '▼ = preempted, "for N" = the request that got its blocks'
    return canvas.panel(
        [
            _rects(canvas, bars),
            _edges(canvas, bars),
            _marks(canvas, evictions, request),
            *(torn(canvas, ending.x, _lane_y, (MARKS_HEIGHT, HEIGHT)) if ending.is_torn else ()),
        ],
        title=title,
        fact=fact,
        labels=[],
        height=HEIGHT,
        names_gaps=False,
        more=[
            *bar_words(canvas, bars),
            *mark_words(canvas, evictions, request),
            *first_token(canvas, rows, evictions),
            *ending_words(canvas, ending),
        ],
    )


def _bars(rows: pd.DataFrame, theme: Theme) -> pd.DataFrame:
    """Returns the rows with where each bar lies, its colours and what is said of it."""
    waits = rows["phase"].isin(list(WAITS))
    loads = rows["phase"] == "load"
    tints = [_tint(row, theme) for row in rows.to_dict("records")]
    return rows.assign(
        colour=tints,
        opacity=waits.map({True: WAIT_OPACITY, False: 1.0}).astype(float),
        top=loads.map({True: LOAD_TOP, False: MARKS_HEIGHT}).astype(float),
        why=[_why(row) for row in rows.to_dict("records")],
        took=[duration(ns) for ns in rows["duration_ns"]],
        wait=waits,
        dashed=rows["phase"] == "preempted",
    )


def _tint(row: dict[Any, Any], theme: Theme) -> str:
    phase = row["phase"]
    plain = {
        "prefill": colours.PREFILL,
        "decode": colours.USEFUL,
        "recompute": colours.LOST,
        "load": colours.HELD,
    }
    if phase in plain:
        return plain[phase].of(theme)
    name = _resource(row)
    if name is not None:
        return colours.of_reason(WaitReason, name, theme)
    return (colours.EVICTED if phase == "preempted" else colours.UNATTRIBUTED).of(theme)


def _resource(row: dict[Any, Any]) -> str | None:
    """Returns the reason that names what it waited for; None where none is known."""
    reason = _text(row["reason"])
    return _text(row["usual_reason"]) if reason in (None, *_NO_RESOURCE) else reason


def _text(value: Any) -> str | None:
    return None if value is None or pd.isna(value) else str(value)


def _why(row: dict[Any, Any]) -> str:
    reason, usual = _text(row["reason"]), _text(row["usual_reason"])
    if row["phase"] not in WAITS or reason is None:
        return "" if row["phase"] not in WAITS else NOT_MEASURED
    if reason == "behind_head" and usual is not None:
        return f"behind {usual}"
    if reason in _NO_RESOURCE and usual is not None:
        return f"mostly {usual}"
    return reason


def _rects(canvas: Canvas, bars: pd.DataFrame) -> alt.Chart:
    return (
        alt.Chart(bars[["x", "x2", "phase", "why", "took", "colour", "opacity", "top", "nth"]])
        .mark_rect(clip=True)
        .encode(
            x=canvas.axis.x(),
            x2=alt.X2("x2:Q"),
            y=_lane_y("top"),
            y2=alt.Y2Value(HEIGHT),
            color=alt.Color("colour:N", scale=None),
            opacity=alt.Opacity("opacity:Q", scale=None),
            tooltip=[
                alt.Tooltip("phase:N"),
                alt.Tooltip("took:N", title="lasted"),
                alt.Tooltip("why:N", title="waited for"),
                alt.Tooltip("nth:Q", title="which of these"),
            ],
        )
    )


def _edges(canvas: Canvas, bars: pd.DataFrame) -> alt.Chart:
    """Returns the edge of each wait: solid where queued, dashed where evicted."""
    waits = bars[bars["wait"]]
    lines = [
        {"x": a, "x2": b, "y": float(y), "y2": float(y2), "colour": row.colour, "dashed": d}
        for row, d in zip(waits.itertuples(index=False), waits["dashed"].tolist(), strict=True)
        for a, b, y, y2 in (
            (row.x, row.x2, MARKS_HEIGHT, MARKS_HEIGHT),
            (row.x, row.x2, HEIGHT, HEIGHT),
            (row.x, row.x, MARKS_HEIGHT, HEIGHT),
            (row.x2, row.x2, MARKS_HEIGHT, HEIGHT),
        )
    ]
    frame = pd.DataFrame(lines, columns=["x", "x2", "y", "y2", "colour", "dashed"])
    return (
        alt.Chart(frame)
        .mark_rule(strokeWidth=1, clip=True)
        .encode(
            x=canvas.axis.x(),
            x2=alt.X2("x2:Q"),
            y=_lane_y("y"),
            y2=alt.Y2("y2:Q"),
            color=alt.Color("colour:N", scale=None),
            strokeDash=alt.condition("datum.dashed", alt.value([3, 2]), alt.value([1, 0])),
        )
    )


def _marks(canvas: Canvas, evictions: pd.DataFrame, request: int) -> alt.Chart:
    told = [for_whom(row, request) for row in evictions.to_dict("records")]
    lost = [NOT_MEASURED if pd.isna(n) else f"{int(n):,}" for n in evictions["lost"]]
    frame = pd.DataFrame({"x": evictions["x"].astype(float), "to": told, "lost": lost})
    return (
        alt.Chart(frame.assign(cause=evictions["cause"].tolist()))
        .mark_point(
            shape="triangle-down",
            filled=True,
            size=46,
            opacity=1,
            color=colours.EVICTED.of(canvas.theme),
        )
        .encode(
            x=canvas.axis.x(),
            y=alt.YValue(MARKS_HEIGHT - 6),
            tooltip=[
                alt.Tooltip("to:N", title="preempted"),
                alt.Tooltip("cause:N"),
                alt.Tooltip("lost:N", title="computed tokens lost"),
            ],
        )
    )


def _lane_y(field: str) -> alt.Y:
    """Returns the encoding of a height in the lane: pixels from its top."""
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[HEIGHT, 0], nice=False), axis=None)


def legend(canvas: Canvas, phases_seen: set[str]) -> alt.LayerChart:
    """Returns what the colours of the lane mean, in one line above it."""
    theme = canvas.theme
    entries = [
        ("queued, by reason", colours.EVICTED, "queued"),
        ("prefill", colours.PREFILL, "prefill"),
        ("decode", colours.USEFUL, "decode"),
        ("evicted, waiting", colours.EVICTED, "preempted"),
        ("recompute", colours.LOST, "recompute"),
    ]
    if "load" in phases_seen:
        entries.append(("load", colours.HELD, "load"))
    marks, words, left = [], [], 6.0
    for said, colour, phase in entries:
        marks.append(
            {
                "px": left,
                "colour": colour.of(theme),
                "fill": WAIT_OPACITY if phase in WAITS else 1.0,
                "dashed": phase == "preempted",
            }
        )
        words.append(Word(left + 12, 7, said, colours.TEXT.of(theme)))
        left += 12 + SMALL_LETTER * len(said) + 26
    swatches = (
        alt.Chart(pd.DataFrame(marks))
        .mark_point(
            shape="square", size=120, filled=True, opacity=1, x=alt.ExprRef("datum.px"), y=7
        )
        .encode(
            fill=alt.Fill("colour:N", scale=None),
            fillOpacity=alt.FillOpacity("fill:Q", scale=None),
            stroke=alt.Stroke("colour:N", scale=None),
            strokeOpacity=alt.value(1),
            strokeWidth=alt.value(1),
            strokeDash=alt.condition("datum.dashed", alt.value([2, 2]), alt.value([1, 0])),
        )
    )
    return alt.layer(swatches, word_layer(words)).properties(width=canvas.axis.width, height=14)
