"""The time axis that all panels share: milliseconds since the window's start, labelled in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt

from dashboard import colours
from dashboard.colours import Theme
from diagnose.reading import NS

LABEL_SPACE = 200
"""Pixels at the right of a panel, for its direct labels."""
AXIS_SPACE = 34
"""Pixels at the left of a panel, for its y axis."""
FONT = "Source Sans, Source Sans Pro, sans-serif"

_STEPS_MS: tuple[float, ...] = (
    *(factor * 10.0**power for power in range(-3, 4) for factor in (1, 2, 5)),
    *(1000.0 * s for s in (10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)),
)
_MOST_TICKS = 10


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The window of a chart, its width in pixels and its theme. Times are ns since the epoch."""

    start_ts: int
    end_ts: int
    theme: Theme
    width: int = 1144

    @property
    def length_ms(self) -> float:
        """Milliseconds from left to right; never 0."""
        return max(self.end_ts - self.start_ts, 1) / 1e6

    def pixel(self, x: float) -> float:
        """Returns where a moment (ms since the start) lies, in pixels from the left."""
        return min(max(x / self.length_ms, 0.0), 1.0) * self.width

    @property
    def scale(self) -> alt.Scale:
        """The one x scale."""
        return alt.Scale(domain=[0, self.length_ms], nice=False, clamp=True)

    def x(self, field: str = "x", *, labels: bool = False) -> alt.X:
        """Returns the x encoding; only the last panel has labels."""
        return alt.X(f"{field}:Q", scale=self.scale, axis=self.axis(labels=labels), title=None)

    def axis(self, *, labels: bool) -> alt.Axis:
        """Returns the x axis: ticks at round times of day."""
        ticks = self.ticks()
        return alt.Axis(
            values=ticks,
            labels=labels,
            ticks=labels,
            domain=False,
            grid=False,
            title=None,
            labelExpr=self._label(ticks),
            labelOverlap=False,
            labelFlush=False,
            tickSize=4,
        )

    def ticks(self) -> list[float]:
        """Returns the round times of day in the window, as ms since its start."""
        step = self._tick_ms()
        start = self.start_ts / 1e6
        first = -(-start // step) * step - start
        count = int((self.length_ms - first) // step) + 1
        return [round(first + i * step, 3) for i in range(max(count, 0))]

    def _tick_ms(self) -> float:
        for step in _STEPS_MS:
            if self.length_ms / step <= _MOST_TICKS:
                return step
        return _STEPS_MS[-1]

    def _label(self, ticks: list[float]) -> str:
        step = self._tick_ms()
        clock = "%d %H:%M" if self.length_ms > 86_400_000 else "%H:%M:%S"
        clock = "%H:%M" if step >= 60_000 and clock == "%H:%M:%S" else clock
        clock = "%H:%M:%S.%L" if step < 1000 else clock
        # Rounded: a date drops what is below 1 ms, and 21.9999 s would be called 21 s.
        return f"utcFormat(round(datum.value + {self.start_ts / 1e6!r}), '{clock}')"


def length_words(ns: int) -> str:
    """Returns the length of a bin: `100 ms`, `1 s`, `5 min`, without needless digits."""
    for unit, name in ((3600 * NS, "h"), (60 * NS, "min"), (NS, "s"), (NS // 1000, "ms")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}"
    return f"{ns / 1e3:.3g} µs"


def y_axis(theme: Theme, *, values: list[float] | None = None, expr: str | None = None) -> alt.Axis:
    """Returns the y axis that every layer of a panel repeats; its ticks are `values`, if given."""
    options: dict[str, Any] = {"labelExpr": expr} if expr else {}
    if values is not None:
        options["values"] = values
    return alt.Axis(
        minExtent=AXIS_SPACE,
        maxExtent=AXIS_SPACE,
        domain=False,
        ticks=False,
        grid=True,
        gridColor=colours.GRID.of(theme),
        labelColor=colours.MUTED.of(theme),
        labelPadding=6,
        labelOverlap=False,
        title=None,
        **options,
    )


def tick_values(top: float, most: int = 4) -> list[float]:
    """Returns 0 and a few round numbers up to `top`."""
    if top <= 0:
        return [0]
    power = 10 ** (len(str(int(top / most) or 1)) - 1)
    step = next(f * power for f in (1, 2, 3, 5, 6, 10, 20) if f * power * most >= top)
    return [float(step * i) for i in range(int(top // step) + 1)]
