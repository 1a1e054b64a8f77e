"""Tokens of one request in the KV cache: they fall to 0 at each preemption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import tick_values, y_axis
from dashboard.charts.canvas import Canvas
from dashboard.charts.endings import Ending, torn
from dashboard.charts.marks import Label, Word, hatching
from dashboard.charts.request_words import SMALL_LETTER, with_room

HEIGHT = 128
TITLE = "Tokens in the KV cache for this request"
OPACITY = 0.85

Known = Literal["steps", "some steps", "turns"]
"""What the points come from: every step, some of the steps, or what happened to the request."""


def known_from(points: pd.DataFrame) -> Known:
    """Returns what the points come from."""
    holes = points["skipped_steps"].dropna()
    if holes.empty:
        return "turns"
    return "steps" if int(holes.iloc[0]) == 0 else "some steps"


def none_yet(x: float) -> pd.DataFrame:
    """Returns the point of a request that waits for its admission: it has no token, at `x`."""
    return pd.DataFrame({"x": [x], "kind": ["arrived"], "tokens": [0], "skipped_steps": [0]})


def tokens(
    canvas: Canvas,
    points: pd.DataFrame,
    evictions: pd.DataFrame,
    *,
    num_prompt_tokens: int,
    fact: str,
    ending: Ending,
    under: list[alt.Chart],
) -> alt.LayerChart:
    """Returns how many tokens it had computed, and under a line the most that it ever had.

    White below the line is work lost. Where each step is known the area has steps; else it is
    straight between what is known, and says so. What it had after the last that is known is
    hatched: it had at least as many tokens.

    Args:
        canvas: what all panels share.
        points: `x`, `kind`, `tokens`, `skipped_steps`, in order of time.
        evictions: `x`, `lost` (missing where not known).
        num_prompt_tokens: its prompt.
        fact: what stands at the right of the title.
        ending: how the picture ends.
        under: layers that lie beneath.
    """
    theme, known = canvas.theme, known_from(points)
    exact = known == "steps"
    levels = _levels(points, canvas.gaps, ending, holds=exact)
    top = max(float(levels["high"].max()), float(num_prompt_tokens), 1.0) * 1.1
    scale = alt.Scale(domain=[0, top], nice=False)
    axis = y_axis(theme, values=tick_values(top / 1.1))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", scale=scale, axis=axis, stack=None)

    shape: Any = "step-after" if exact else "linear"
    area = (
        alt.Chart(levels)
        .mark_area(interpolate=shape, color=colours.USEFUL.of(theme), opacity=OPACITY, clip=True)
        .encode(x=canvas.axis.x(), y=y("tokens"))
    )
    high = (
        alt.Chart(levels)
        .mark_line(
            interpolate=shape,
            color=colours.TEXT.of(theme),
            strokeWidth=1.4,
            strokeDash=[1, 0] if exact else [5, 2],
            clip=True,
        )
        .encode(x=canvas.axis.x(), y=y("high"))
    )
    prompt = (
        alt.Chart(pd.DataFrame([{"y": float(num_prompt_tokens)}]))
        .mark_rule(strokeDash=[4, 3], color=colours.PREFILL.of(theme))
        .encode(y=y("y"))
    )
    last = float(levels["tokens"].iloc[-1])
    is_short = last > 0 and points["kind"].iloc[-1] != "finished" and not exact
    left, right = canvas.axis.pixel(levels["x"].iloc[-1]), canvas.axis.pixel(ending.x)
    unknown = [(left, right, HEIGHT * (1 - last / top), float(HEIGHT))] if is_short else []
    return canvas.panel(
        [
            area,
            prompt,
            high,
            *([hatching(unknown, colours.USEFUL.of(theme))] if unknown else ()),
            *(torn(canvas, ending.x, y, (0.0, last * 1.04)) if ending.is_torn and last else ()),
        ],
        title=TITLE,
        fact=fact,
        labels=_labels(levels, num_prompt_tokens, known, top, theme, at_least=bool(unknown)),
        height=HEIGHT,
        under=under,
        more=list(_lost_words(canvas, evictions, levels, top)),
    )


def _levels(
    points: pd.DataFrame, gaps: pd.DataFrame, ending: Ending, *, holds: bool
) -> pd.DataFrame:
    """Returns `x`, `tokens`, `high`: the points with both sides of each fall and each return.

    Args:
        points: what is known.
        gaps: stretches without a record, which end the area and are not bridged.
        ending: how the picture ends.
        holds: whether a level holds until the next is known.
    """
    rows: list[tuple[float, float | None, float | None]] = []
    high = level = 0.0
    is_in = False
    holes = sorted(gaps["x"].tolist())
    for point in points.to_dict("records"):
        x, told = float(point["x"]), point["tokens"]
        while holes and holes[0] < x:
            edge = holes.pop(0)
            if rows:
                rows += [(edge, level, high)] if holds or not is_in else []
                rows.append((edge, None, None))
        if point["kind"] != "preempted" and not is_in:
            rows.append((x, 0.0, high if rows else None))
        level = level if pd.isna(told) else float(told)
        high = max(high, level)
        rows.append((x, level, high))
        is_in = point["kind"] not in ("preempted", "finished")
        if point["kind"] == "preempted":
            level = 0.0
            rows.append((x, 0.0, high))
    if rows and (points["kind"].iloc[-1] == "preempted" or (is_in and holds)):
        rows.append((max(ending.x, rows[-1][0]), level, high))
    return pd.DataFrame(rows, columns=["x", "tokens", "high"]).astype(float)


def _labels(
    levels: pd.DataFrame,
    prompt: int,
    known: Known,
    top: float,
    theme: colours.Theme,
    *,
    at_least: bool,
) -> list[Label]:
    def place(value: float) -> float:
        return HEIGHT * (1 - value / top)

    muted = colours.MUTED.of(theme)
    most = float(levels["high"].max())
    most_words = f"highest point reached {'≥ ' if at_least else ''}{most:,.0f}"
    labels = [
        (most, Label(most_words, colours.TEXT.of(theme))),
        (
            prompt,
            Label(f"prompt {prompt:,}", colours.text_colour(colours.PREFILL.of(theme), theme)),
        ),
    ]
    if not most:
        labels = labels[1:]
    shown = [
        Label(label.text, label.colour, y=place(value))
        for value, label in sorted(labels, key=lambda each: -each[0])
    ]
    if known != "steps":
        each = "at its turns" if known == "turns" else "in some of its steps"
        foot = max(place(float(prompt)) + 32, HEIGHT - 20.0)
        shown += [Label(f"known {each},", muted, y=foot), Label("straight between them", muted)]
        if at_least:
            shown.append(Label("hatched: at least as many", muted))
    return shown


def _lost_words(
    canvas: Canvas, evictions: pd.DataFrame, levels: pd.DataFrame, top: float
) -> Iterator[Word]:
    """Yields what each preemption lost, where there is room before the next."""
    colour = colours.text_colour(colours.LOST.of(canvas.theme), canvas.theme)
    for row, place, room in with_room(canvas, evictions):
        if pd.isna(row["lost"]):
            continue
        said = f"−{int(row['lost']):,}"
        if room < SMALL_LETTER * len(said) + 6:
            continue
        reached = levels.loc[levels["x"] <= row["x"], "high"].max()
        y = HEIGHT * (1 - float(reached) / top) - 8
        yield Word(place + 4, max(y, 6.0), said, colour, bold=True, size=11)
