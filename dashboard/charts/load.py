"""The panels of requests: those that come and go, those that run and wait."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import length_words, y_axis
from dashboard.charts.canvas import Canvas
from dashboard.charts.marks import Label, Word
from dashboard.queries.panels import REST
from telemetry.vocabulary import WaitReason

BRUSH = "win"
"""Name of the selection that the brush over arrivals makes."""
ARRIVALS_HEIGHT = 30
RUNNING_HEIGHT = 94
RUNNING_TITLE = "Requests running, and waiting by reason"
MAX_LABELS = 6


def arrivals(
    canvas: Canvas, marks: pd.DataFrame, *, num_arrived: int, num_finished: int, bin_ns: int | None
) -> alt.Chart:
    """Returns two rows of ticks, and the brush that chooses a window.

    It is one unlayered view: a brush beside the cursor's layers draws nothing in a browser.

    Args:
        canvas: what all panels share.
        marks: `x`, `kind`; with `bin_ns` also `n`, the number in each bin.
        num_arrived: all arrivals of the window.
        num_finished: all ends of the window.
        bin_ns: length of a bin; None where each row is one request.
    """
    axis, theme = canvas.axis, canvas.theme
    said = {"arrived": f"{num_arrived:,} arrived", "finished": f"{num_finished:,} finished"}
    title = "Requests arriving and finishing"
    if bin_ns is not None:
        title += f", per {length_words(bin_ns)}: darker = more"
    tint = {"arrived": colours.TEXT.of(theme), "finished": colours.MUTED.of(theme)}
    chart = alt.Chart(marks.assign(colour=marks["kind"].map(tint)))
    base = (
        chart.mark_tick(thickness=1.5, size=12)
        if bin_ns is None
        else chart.mark_tick(thickness=max(2.0, axis.pixel(bin_ns / 1e6) - 1), size=12)
    )
    opacity = (
        alt.value(0.9)
        if bin_ns is None
        else alt.Opacity("n:Q", scale=alt.Scale(range=[0.15, 1.0]), legend=None)
    )
    return (
        base.encode(
            x=axis.x(),
            y=alt.Y(
                "kind:N",
                scale=alt.Scale(domain=["arrived", "finished"]),
                axis=alt.Axis(
                    orient="right",
                    domain=False,
                    ticks=False,
                    grid=False,
                    title=None,
                    offset=6,
                    labelExpr=f"{said!r}[datum.value]",
                    labelLimit=190,
                    labelColor=colours.TEXT.of(theme),
                    labelFontSize=12,
                ),
            ),
            color=alt.Color("colour:N", scale=None),
            opacity=opacity,
        )
        .add_params(
            alt.selection_interval(
                name=BRUSH,
                encodings=["x"],
                mark=alt.BrushConfig(
                    fill=colours.LINK.of(theme), fillOpacity=0.2, stroke=colours.LINK.of(theme)
                ),
            )
        )
        .properties(
            width=axis.width,
            height=ARRIVALS_HEIGHT,
            title=alt.TitleParams(
                title,
                anchor="start",
                offset=4,
                fontSize=13,
                fontWeight="bold",
                color=colours.TEXT.of(theme),
            ),
        )
    )


def running_and_waiting(
    canvas: Canvas,
    runs: pd.DataFrame,
    *,
    max_num_seqs: int | None,
    mean_over: int | None,
    title: str = RUNNING_TITLE,
    paleness: float = 1.0,
    over: Sequence[alt.Chart] = (),
    more: Sequence[Word] = (),
) -> alt.LayerChart:
    """Returns running requests and, upon them, waiting ones by reason.

    Args:
        canvas: what all panels share.
        runs: `x`, `series`, `y`, `y2`: `running`, a WaitReason, `behind` a WaitReason.
        max_num_seqs: slots of the engine.
        mean_over: length of the stretches that were averaged, in ns; None where exact.
        title: what the panel is called.
        paleness: opacity of the areas.
        over: layers that lie upon the areas.
        more: words that lie upon it.
    """
    theme = canvas.theme
    if mean_over is not None:
        title += f", mean per {length_words(mean_over)}"
    top = float(runs["y2"].max()) if not runs.empty else 0.0
    reached = max_num_seqs is not None and _most(runs, "running") >= max_num_seqs
    domain_top = max(top * 1.08, 1.0)
    shows_limit = max_num_seqs is not None and max_num_seqs <= max(2.5 * top, 8)
    if shows_limit and max_num_seqs is not None:
        domain_top = max(domain_top, max_num_seqs * 1.06)
    scale = alt.Scale(domain=[0, domain_top], nice=False)
    axis = y_axis(theme, values=_integers(domain_top))
    states = canvas.closed(runs, ["y", "y2"])
    states["colour"] = [colour_of_series(name, theme) for name in states["series"]]
    states["opacity"] = [paleness * _opacity(name) for name in states["series"]]
    area = (
        alt.Chart(states)
        .mark_area(interpolate="step-after", clip=True)
        .encode(
            x=canvas.axis.x(),
            y=alt.Y("y:Q", scale=scale, axis=axis, stack=None),
            y2=alt.Y2("y2:Q"),
            detail=alt.Detail("series:N"),
            color=alt.Color("colour:N", scale=None),
            opacity=alt.Opacity("opacity:Q", scale=None),
        )
    )
    layers = [area, *over]
    if shows_limit:
        layers.append(
            alt.Chart(pd.DataFrame([{"limit": max_num_seqs}]))
            .mark_rule(strokeDash=[4, 3], color=colours.SLOTS.of(theme))
            .encode(y=alt.Y("limit:Q", scale=scale, axis=axis))
        )
    most_waiting = top - 0 if top == 0 else _most_waiting(runs)
    return canvas.panel(
        layers,
        title=title,
        fact=f"up to {_most(runs, 'running'):,.0f} running, {most_waiting:,.0f} waiting",
        labels=_running_labels(runs, theme, max_num_seqs, reached),
        height=RUNNING_HEIGHT,
        more=more,
    )


def colour_of_series(name: str, theme: colours.Theme) -> str:
    """Returns the colour of `running`, of a reason, or of those behind it."""
    if name == "running":
        return colours.USEFUL.of(theme)
    return colours.of_reason(WaitReason, name.removeprefix("behind "), theme)


def _opacity(name: str) -> float:
    return colours.BEHIND_HEAD_OPACITY if name.startswith("behind ") else 1.0


def _running_labels(
    runs: pd.DataFrame, theme: colours.Theme, max_num_seqs: int | None, reached: bool
) -> list[Label]:
    labels = []
    if max_num_seqs is not None:
        slots = colours.text_colour(colours.SLOTS.of(theme), theme)
        said = "reached" if reached else "never reached"
        labels.append(Label(f"max_num_seqs {max_num_seqs:,}, {said}", slots))
    thickness = (runs["y2"] - runs["y"]).groupby(runs["series"]).max().to_dict()
    reasons: dict[str, float] = {}
    for series, most in thickness.items():
        name = str(series).removeprefix("behind ")
        if name not in ("running", REST) and most > 0:
            reasons[name] = max(reasons.get(name, 0.0), most)
    named = sorted(reasons, key=lambda name: -reasons[name])[: MAX_LABELS - 1]
    for name in named:
        colour = colours.text_colour(colour_of_series(name, theme), theme)
        labels.append(Label(f"waiting: {name}", colour, bold=True))
    left = len(reasons) - len(named) + (REST in thickness)
    if left:
        labels.append(Label(f"and {left} more reasons", colours.MUTED.of(theme)))
    if not reasons:
        labels.append(Label("waiting 0", colours.MUTED.of(theme)))
    labels.append(Label("running", colours.USEFUL.of(theme), bold=True))
    return labels


def _most(runs: pd.DataFrame, series: str) -> float:
    own = runs[runs["series"] == series]
    return float((own["y2"] - own["y"]).max()) if not own.empty else 0.0


def _most_waiting(runs: pd.DataFrame) -> float:
    """Returns the largest queue: the waiting series of a moment, together."""
    waiting = runs[runs["series"] != "running"]
    if waiting.empty:
        return 0.0
    wide = (
        waiting.assign(n=waiting["y2"] - waiting["y"])
        .pivot_table(index="x", columns="series", values="n", aggfunc="last")
        .ffill()
    )
    return float(wide.sum(axis=1).max())


def _integers(top: float) -> list[float]:
    step = next(f * 10**p for p in range(7) for f in (1, 2, 5) if f * 10**p * 3.6 >= top)
    return [float(i * step) for i in range(int(top // step) + 1)]
