"""Where the time of a step went: one bar, a stretch a phase."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.timeline import AUTOSIZE, configured
from dashboard.colours import Theme

BAR_HEIGHT = 22
BETWEEN = "between them"
TINTS = {
    "schedule": colours.CACHED,
    "bitmask": colours.SLOTS,
    "inputs": colours.MUTED,
    "forward": colours.USEFUL,
    "draft": colours.REJECTED_DRAFTS,
    "sample": colours.PREFILL,
    "connector": colours.HELD,
    "update": colours.UNATTRIBUTED,
    BETWEEN: colours.BORDER,
}
"""The colour of each phase; time that no phase accounts for is as good as ground."""


def phase_bar(parts: list[tuple[str, int]], *, width: int, theme: Theme) -> Any:
    """Returns a bar of phases and their nanoseconds, in order, over `width` pixels."""
    rows, left = [], 0
    for phase, ns in parts:
        tint = TINTS.get(phase, colours.UNATTRIBUTED).of(theme)
        rows.append({"x": left, "x2": left + ns, "phase": phase, "ms": ns / 1e6, "colour": tint})
        left += ns
    bar = (
        alt.Chart(pd.DataFrame(rows))
        .mark_rect(stroke=colours.BACKGROUND.of(theme), strokeWidth=1)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(domain=[0, max(left, 1)], nice=False), axis=None),
            x2=alt.X2("x2:Q"),
            y=alt.YValue(0),
            y2=alt.Y2Value(BAR_HEIGHT),
            color=alt.Color("colour:N", scale=None),
            tooltip=[
                alt.Tooltip("phase:N"),
                alt.Tooltip("ms:Q", format=",.3f", title="milliseconds"),
            ],
        )
        .properties(width=width, height=BAR_HEIGHT, autosize=AUTOSIZE)
    )
    return configured(bar, theme, {"left": 0, "top": 2, "right": 0, "bottom": 2})
