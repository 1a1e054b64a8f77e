"""How the picture of a request ends: as the request did, open, or torn with its engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import pandas as pd

from dashboard import colours
from dashboard.charts.canvas import Canvas

TOOTH_PX = 5
NUM_TEETH = 7


@dataclass(frozen=True, slots=True)
class Ending:
    """How the picture of a request ends.

    Attributes:
        x: ms since the window's start at which it ended, or up to which it is known.
        words: what stands there; None where it simply ended.
        is_torn: whether its engine went before it ended.
    """

    x: float
    words: str | None = None
    is_torn: bool = False


def torn(
    canvas: Canvas, x: float, y: Callable[[str], alt.Y], ends: tuple[float, float]
) -> list[alt.Chart]:
    """Returns a torn edge at a moment: what is known ends there, the request did not.

    Args:
        canvas: what all panels share.
        x: the moment, in ms since the window's start.
        y: the encoding of a height in the panel.
        ends: the two heights between which it is torn.
    """
    theme, axis = canvas.theme, canvas.axis
    tooth = TOOTH_PX * axis.length_ms / axis.width
    step = (ends[1] - ends[0]) / NUM_TEETH
    rows = pd.DataFrame(
        {
            "y": [ends[0] + i * step for i in range(NUM_TEETH + 1)],
            "x": [x - (tooth if i % 2 else 0.0) for i in range(NUM_TEETH + 1)],
            "x2": x + tooth,
        }
    )
    ground = (
        alt.Chart(rows)
        .mark_area(orient="horizontal", color=colours.BACKGROUND.of(theme), opacity=1)
        .encode(x=axis.x().stack(None), x2=alt.X2("x2:Q"), y=y("y"))
    )
    edge = (
        alt.Chart(rows)
        .mark_line(color=colours.TEXT.of(theme), strokeWidth=1)
        .encode(x=axis.x(), y=y("y"), order=alt.Order("y:Q"))
    )
    return [ground, edge]
