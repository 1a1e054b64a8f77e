"""Who evicted whom, and what it cost."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.marks import Word, word_layer
from dashboard.charts.timeline import AUTOSIZE, configured
from dashboard.colours import Theme
from telemetry.vocabulary import PreemptionCause

MAP_HEIGHT = 470
MAX_MARKS = 400
"""More preemptions than this are drawn as a grid."""
GRID_CELLS = 40
BAR_HEIGHT = 26
CHOSEN = "chosen"
"""The selection of the request whose mark was clicked."""
MAP_MARGIN = 42
"""Pixels of the map's width that its y axis takes."""


def eviction_map(
    marks: pd.DataFrame,
    *,
    width: int,
    theme: Theme,
    payers: tuple[int, int, int],
    by_priority: bool = False,
) -> Any:
    """Returns a mark a preemption: beneficiary across, victim down, area = tokens lost.

    Below the diagonal a newer request paid for an older one; on it a request evicted itself.

    Args:
        marks: `request` (the victim), `beneficiary`, `request_place`, `beneficiary_place` (by
            arrival, or by priority and then arrival), `cause`, `lost`; with more than MAX_MARKS
            preemptions the cells of `queries.preemptions.grid` instead, with `n`.
        width: pixels.
        theme: of the page.
        payers: preemptions in which a newer request, the asking one itself, an older one paid.
        by_priority: whether places follow priority first.
    """
    top = _top(marks)
    order = "priority, then arrival" if by_priority else "arrival number"
    x = _axis(
        "beneficiary_place", f"beneficiary: {order} of the request that got the blocks →", top
    )
    y = alt.Y(
        "request_place:Q",
        scale=alt.Scale(domain=[0, top], nice=False, reverse=True, padding=8),
        axis=_quiet(theme, f"← victim: {order}"),
    )
    layers = [_diagonal(top, theme, x, y)]
    layers.append(_cells(marks, theme, x, y) if "n" in marks else _points(marks, theme, x, y))
    layers.append(word_layer(_map_words(width - MAP_MARGIN, payers, theme)))
    chart = alt.layer(*layers).properties(
        width=width - MAP_MARGIN, height=MAP_HEIGHT, autosize=AUTOSIZE
    )
    return configured(chart, theme)


def _map_words(width: int, payers: tuple[int, int, int], theme: Theme) -> list[Word]:
    newer, itself, older = payers
    total = newer + itself + older
    muted, orange = colours.MUTED.of(theme), colours.EVICTED.of(theme)
    pink = colours.LOST.of(theme)
    foot = MAP_HEIGHT - 62
    words = [
        Word(14, foot, f"{newer:,}", orange, bold=True),
        Word(14, foot + 17, "a newer request was", orange),
        Word(14, foot + 32, "evicted for an older one", orange),
        Word(width - 8, 96, "above the line: an older request", muted, align="right"),
        Word(width - 8, 112, f"pays for a newer one. {older:,} of {total:,}", muted, align="right"),
    ]
    if itself:
        said = f"{itself:,} evicted {'itself' if itself == 1 else 'themselves'}"
        words.append(Word(width - 8, 150, f"{said} (hollow)", pink, align="right"))
    return words


def _top(marks: pd.DataFrame) -> float:
    if marks.empty:
        return 1.0
    return float(max(marks["request_place"].max(), marks["beneficiary_place"].max(), 1))


def _axis(field: str, title: str, top: float) -> alt.X:
    return alt.X(
        f"{field}:Q",
        scale=alt.Scale(domain=[0, top], nice=False, padding=8),
        axis=alt.Axis(title=title, grid=False, tickCount=6, domain=True, titleFontWeight="normal"),
    )


def _quiet(theme: Theme, title: str) -> alt.Axis:
    return alt.Axis(
        title=title,
        grid=False,
        tickCount=6,
        titleFontWeight="normal",
        domainColor=colours.BORDER.of(theme),
    )


def _diagonal(top: float, theme: Theme, x: alt.X, y: alt.Y) -> alt.Chart:
    ends = pd.DataFrame(
        [
            {"beneficiary_place": 0.0, "request_place": 0.0},
            {"beneficiary_place": top, "request_place": top},
        ]
    )
    return (
        alt.Chart(ends)
        .mark_line(strokeDash=[3, 3], strokeWidth=1, color=colours.MUTED.of(theme))
        .encode(x=x, y=y)
    )


def _points(marks: pd.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> alt.Chart:
    frame = marks.assign(itself=marks["request"] == marks["beneficiary"])
    frame["fill"] = [
        "transparent" if itself else colours.of_reason(PreemptionCause, cause, theme)
        for itself, cause in zip(frame["itself"], frame["cause"], strict=True)
    ]
    frame["edge"] = [
        colours.LOST.of(theme) if itself else colours.BACKGROUND.of(theme)
        for itself in frame["itself"]
    ]
    return (
        alt.Chart(frame)
        .mark_point(filled=True, opacity=0.9, strokeWidth=1.5)
        .encode(
            x=x,
            y=y,
            size=alt.Size("lost:Q", scale=alt.Scale(range=[40, 190], zero=False), legend=None),
            fill=alt.Fill("fill:N", scale=None),
            stroke=alt.Stroke("edge:N", scale=None),
            tooltip=[
                alt.Tooltip("request:Q", title="victim"),
                alt.Tooltip("beneficiary:Q", title="its blocks went to"),
                alt.Tooltip("lost:Q", title="tokens lost"),
                alt.Tooltip("time:N", title="time (UTC)"),
                alt.Tooltip("step:Q", title="step"),
            ],
        )
        .add_params(alt.selection_point(name=CHOSEN, fields=["request"], empty=False))
    )


def _cells(marks: pd.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> alt.Chart:
    return (
        alt.Chart(marks)
        .mark_rect()
        .encode(
            x=x,
            x2=alt.X2("beneficiary_end:Q"),
            y=y,
            y2=alt.Y2("request_end:Q"),
            color=alt.Color(
                "lost:Q",
                scale=alt.Scale(
                    range=[colours.PANEL.of(theme), colours.EVICTED.of(theme)], zero=True
                ),
                legend=None,
            ),
            tooltip=[
                alt.Tooltip("n:Q", title="preemptions"),
                alt.Tooltip("lost:Q", title="tokens lost"),
            ],
        )
    )


def cost_bar(parts: list[tuple[str, int, str]], *, width: int, theme: Theme) -> Any:
    """Returns one bar of the computed tokens that were lost, split by where they went.

    Args:
        parts: words, tokens and colour of each part, in order.
        width: pixels.
        theme: of the page.
    """
    total = sum(tokens for _, tokens, _ in parts)
    rows, left = [], 0
    for said, tokens, colour in parts:
        rows.append(
            {"x": left, "x2": left + tokens, "said": said, "tokens": tokens, "colour": colour}
        )
        left += tokens
    bar = (
        alt.Chart(pd.DataFrame(rows))
        .mark_rect(stroke=colours.BACKGROUND.of(theme), strokeWidth=2)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(domain=[0, max(total, 1)], nice=False), axis=None),
            x2=alt.X2("x2:Q"),
            y=alt.YValue(0),
            y2=alt.Y2Value(BAR_HEIGHT),
            color=alt.Color("colour:N", scale=None),
            tooltip=[alt.Tooltip("said:N", title=" "), alt.Tooltip("tokens:Q", format=",")],
        )
        .properties(width=width, height=BAR_HEIGHT, autosize=AUTOSIZE)
    )
    return configured(bar, theme, {"left": 0, "top": 2, "right": 0, "bottom": 2})
