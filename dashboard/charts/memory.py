"""The panels of KV memory: who holds the blocks, and what the queue head lacks."""

from __future__ import annotations

import math

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import length_words, y_axis
from dashboard.charts.canvas import Canvas
from dashboard.charts.marks import Label

BLOCKS_HEIGHT = 104
NEED_HEIGHT = 48
CACHED_OPACITY = 0.6


def blocks(
    canvas: Canvas,
    runs: pd.DataFrame,
    *,
    pool: int,
    block_size: int | None,
    fact: str,
    mean_over: int | None,
) -> alt.LayerChart:
    """Returns who holds the KV blocks, stacked from below; free is the background.

    Args:
        canvas: what all panels share.
        runs: `x`, `series` (running, waiting, ended, cached), `y`, `y2`.
        pool: blocks that can be handed out.
        block_size: tokens of a block.
        fact: what stands at the right of the title.
        mean_over: length of the stretches that were averaged, in ns; None where exact.
    """
    theme = canvas.theme
    fills = {
        "running": colours.USEFUL,
        "waiting": colours.HELD,
        "ended": colours.UNATTRIBUTED,
        "cached": colours.CACHED,
    }
    scale = alt.Scale(domain=[0, pool], nice=False)
    axis = y_axis(theme, values=[0, round(pool / 3), round(2 * pool / 3), pool])
    states = canvas.closed(runs, ["y", "y2"])
    states["colour"] = [fills[name].of(theme) for name in states["series"]]
    area = (
        alt.Chart(states)
        .mark_area(interpolate="step-after", clip=True)
        .encode(
            x=canvas.axis.x(),
            y=alt.Y("y:Q", scale=scale, axis=axis, stack=None),
            y2=alt.Y2("y2:Q"),
            detail=alt.Detail("series:N"),
            color=alt.Color("colour:N", scale=None),
            opacity=alt.condition(
                "datum.series == 'cached'", alt.value(CACHED_OPACITY), alt.value(0.94)
            ),
        )
    )
    rule = (
        alt.Chart(pd.DataFrame([{"limit": pool}]))
        .mark_rule(color=colours.MUTED.of(theme), opacity=0.8)
        .encode(y=alt.Y("limit:Q", scale=scale, axis=axis))
    )
    title = "KV blocks"
    if mean_over is not None:
        title += f", mean per {length_words(mean_over)}"
    return canvas.panel(
        [area, rule],
        title=title,
        fact=fact,
        labels=_block_labels(runs, theme, pool, block_size),
        height=BLOCKS_HEIGHT,
    )


def _block_labels(
    runs: pd.DataFrame, theme: colours.Theme, pool: int, block_size: int | None
) -> list[Label]:
    muted = colours.MUTED.of(theme)
    of = "" if block_size is None else f" of {block_size:,} tokens"
    labels = [
        Label(f"pool {pool:,} blocks{of}", muted),
        Label("free", muted, y=24),
        Label("cached: free, but reusable", colours.TEXT.of(theme), y=40),
    ]
    if _most(runs, "ended") > 0:
        labels.append(Label("kept for ended requests", muted, y=56))
    labels.append(Label("used by running requests", colours.USEFUL.of(theme), bold=True, y=66))
    held = _most(runs, "waiting")
    colour = colours.text_colour(colours.HELD.of(theme), theme) if held else muted
    said = f"up to {held:,.0f}" if held else "0"
    labels.append(Label(f"held by waiting requests {said}", colour, bold=held > 0, y=84))
    return labels


def _most(runs: pd.DataFrame, series: str) -> float:
    own = runs[runs["series"] == series]
    return float((own["y2"] - own["y"]).max()) if not own.empty else 0.0


def cut_of(largest: float) -> float:
    """Returns where the axis of blocks ends: 8 blocks, or a little above the largest need, even."""
    return 8.0 if largest <= 7 else 2.0 * math.ceil(1.3 * largest / 2)


def need(
    canvas: Canvas, runs: pd.DataFrame, *, fact: str, worst_over: int | None
) -> alt.LayerChart:
    """Returns free blocks against those that the queue head needs; the shortage is filled.

    Args:
        canvas: what all panels share.
        runs: `x`, `x2`, `free`, `need` (missing where nobody needs any).
        fact: what stands at the right of the title.
        worst_over: length of the stretches whose least free and largest need are drawn, in ns.
    """
    theme = canvas.theme
    largest = float(runs["need"].max()) if runs["need"].notna().any() else 0.0
    cut = cut_of(largest)
    frame = runs.assign(
        series="free",
        free=runs["free"].astype(float).clip(upper=cut),
        need=runs["need"].astype(float),
    )
    frame["short"] = frame[["free", "need"]].max(axis=1)
    states = canvas.closed(frame[["x", "series", "free", "short"]], ["free", "short"])
    scale = alt.Scale(domain=[0, cut], nice=False)
    axis = y_axis(theme, values=[0, round(cut / 2), round(cut)])
    x = canvas.axis.x()
    short = (
        alt.Chart(states)
        .mark_area(
            interpolate="step-after", color=colours.EVICTED.of(theme), opacity=0.3, clip=True
        )
        .encode(x=x, y=alt.Y("free:Q", scale=scale, axis=axis, stack=None), y2=alt.Y2("short:Q"))
    )
    line = (
        alt.Chart(states)
        .mark_line(interpolate="step-after", color=colours.TEXT.of(theme), strokeWidth=1, clip=True)
        .encode(x=x, y=alt.Y("free:Q", scale=scale, axis=axis))
    )
    needs = frame.assign(x2=canvas.ends(frame))[frame["need"].notna()]
    rule = (
        alt.Chart(needs[["x", "x2", "need"]])
        .mark_rule(strokeWidth=2, color=colours.EVICTED.of(theme), clip=True)
        .encode(x=x, x2=alt.X2("x2:Q"), y=alt.Y("need:Q", scale=scale, axis=axis))
    )
    title = "Free blocks against the blocks the queue head needs"
    if worst_over is not None:
        title += f", worst per {length_words(worst_over)}"
    is_cut = bool((runs["free"] > cut).any())
    free = f"free (axis cut at {cut:,.0f})" if is_cut else "free"
    return canvas.panel(
        [short, line, rule],
        title=title,
        fact=fact,
        labels=[
            Label("needed by the queue head", colours.EVICTED.of(theme), bold=True),
            Label(free, colours.TEXT.of(theme), y=38),
        ],
        height=NEED_HEIGHT,
    )
