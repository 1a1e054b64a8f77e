"""The panels on one time axis, one cursor through all of them, and the line that reads it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import FONT
from dashboard.charts.canvas import Canvas
from dashboard.charts.marks import at_cursor, cursor, picked
from dashboard.colours import Theme
from diagnose.words import NOT_MEASURED, duration, time_of_day

SPACING = 32
"""Pixels between two panels: room for a title."""
READOUT_HEIGHT = 18
READOUT_BELOW = 8
HINT = (
    "Point at a moment to read it, click to open its step; drag over the arrivals to look closer."
)
"""What the readout line says while nobody points."""


def timeline(
    canvas: Canvas,
    panels: Sequence[alt.Chart | alt.LayerChart],
    *,
    is_still: bool = False,
    hint: str = HINT,
    below: int = READOUT_BELOW,
) -> alt.VConcatChart:
    """Returns the panels under each other, and the readout line, which a still picture lacks.

    The line is so many pixels `below` the room that the last panel's axis has.
    """
    last = [] if is_still else [_readout(canvas, hint, below)]
    chart = alt.vconcat(*panels, *last, spacing=SPACING, bounds="flush")
    names = [
        layer.name
        for panel in chart.vconcat
        for layer in getattr(panel, "layer", [])
        if isinstance(layer.name, str) and layer.name.startswith("cursor_")
    ]
    known = chart.params if chart.params is not alt.Undefined else []
    chart.params = [*known, cursor(names), *([] if is_still else [picked(names)])]
    return configured(chart, canvas.theme, PADDING)


PADDING = {"left": 38, "top": 22, "right": 206, "bottom": 4}
"""Pixels around the panels: axis labels, the first title, direct labels."""


def configured(chart: Any, theme: Theme, padding: dict[str, int] | None = None) -> Any:
    """Puts a whole chart into the theme's colours, on no ground of its own; returns it.

    The chart is changed in place: Altair's own `configure` copies all of it, three times here.
    """
    chart.config = alt.Config(
        background="transparent",
        font=FONT,
        padding=padding or NO_PADDING,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=colours.MUTED.of(theme),
            labelFontSize=11,
            titleColor=colours.MUTED.of(theme),
            gridColor=colours.GRID.of(theme),
            tickColor=colours.BORDER.of(theme),
        ),
    )
    return chart


NO_PADDING = {"left": 4, "top": 4, "right": 8, "bottom": 4}
AUTOSIZE = alt.AutoSizeParams(type="pad", contains="content")
"""Width and height are those of the plot; else the host counts axes and titles in."""


def _readout(canvas: Canvas, hint: str, below: int) -> alt.LayerChart:
    theme = canvas.theme
    quiet = (
        alt.Chart(pd.DataFrame([{"text": hint}]))
        .transform_calculate(shown="length(data('cursor_store')) ? '' : datum.text")
        .mark_text(align="left", fontSize=12, color=colours.MUTED.of(theme), x=0, y=below)
        .encode(text=alt.Text("shown:N"))
    )
    told = (
        alt.Chart(canvas.stops)
        .transform_filter(at_cursor())
        .mark_text(align="left", fontSize=12, color=colours.TEXT.of(theme), x=0, y=below)
        .encode(text=alt.Text("readout:N"))
    )
    return alt.layer(quiet, told).properties(width=canvas.axis.width, height=READOUT_HEIGHT)


def readouts(rows: pd.DataFrame, pool: int | None) -> pd.DataFrame:
    """Returns `x`, `step` and `readout` of the moments that the cursor can stop at.

    Args:
        rows: a row a step: x, step, ts, duration_ns, num_running, num_waiting, num_blocks_free,
            head_blocks_needed, stop_reason, num_scheduled_tokens, num_recomputed_tokens,
            num_preempted.
        pool: blocks that can be handed out.
    """
    lines = [_line(row, pool) for row in rows.to_dict("records")]
    return pd.DataFrame({"x": rows["x"].astype(float), "step": rows["step"], "readout": lines})


def _line(row: dict[Any, Any], pool: int | None) -> str:
    of = "" if pool is None else f" of {pool:,}"
    parts = [
        f"cursor {time_of_day(int(row['ts']), 3)}",
        f"step {int(row['step']):,}",
        duration(_known(row["duration_ns"])),
        f"running {_count(row['num_running'])}",
        f"waiting {_count(row['num_waiting'])}",
        f"free {_count(row['num_blocks_free'])}{of}",
        f"head needs {_count(row['head_blocks_needed'])} blocks",
        f"stop {row['stop_reason'] or NOT_MEASURED}",
        f"tokens {_count(row['num_scheduled_tokens'])}, "
        f"recomputed {_count(row['num_recomputed_tokens'])}",
    ]
    if _known(row["num_preempted"]):
        parts.append(f"evicted {_count(row['num_preempted'])}")
    return "     ".join(parts)


def _known(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _count(value: Any) -> str:
    known = _known(value)
    return NOT_MEASURED if known is None else f"{known:,}"
