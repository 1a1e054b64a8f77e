"""Recorded preemptions against the engine's scraped counter."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.axis import TimeAxis, y_axis
from dashboard.charts.timeline import AUTOSIZE, configured
from dashboard.colours import Theme
from diagnose.reading import Scope

HEIGHT = 100


def counter_lag(
    recorded: pd.DataFrame, scraped: pd.DataFrame, *, scope: Scope, width: int, theme: Theme
) -> Any:
    """Returns two lines of cumulative preemptions: as recorded, and as scraped.

    Args:
        recorded: `x`, `value`, a row a preempting step.
        scraped: `x`, `value`, a row a scrape; it starts from its first value.
        scope: the window.
        width: pixels.
        theme: of the page.
    """
    axis = TimeAxis(scope.start_ts, scope.end_ts, theme, width=width - 50)
    seen = scraped.assign(value=scraped["value"] - scraped["value"].iloc[0])
    x = axis.x(labels=True)
    y = alt.Y("value:Q", axis=y_axis(theme), title=None)
    lines = [
        alt.Chart(recorded)
        .mark_line(interpolate="step-after", color=colours.EVICTED.of(theme))
        .encode(x=x, y=y),
        alt.Chart(seen)
        .mark_line(strokeDash=[3, 2], color=colours.MUTED.of(theme), point=True)
        .encode(x=x, y=y),
    ]
    chart = alt.layer(*lines).properties(width=axis.width, height=HEIGHT, autosize=AUTOSIZE)
    return configured(chart, theme)
