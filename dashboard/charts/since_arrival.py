"""The time axis of one request's story: milliseconds since it arrived, or seconds of a long one."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.charts.axis import TimeAxis

LONG_MS = 5_000
"""Milliseconds of a window from which its axis counts seconds."""


@dataclass(frozen=True, slots=True)
class SinceArrival(TimeAxis):
    """A window around the life of a request.

    Attributes:
        arrived_ts: when it arrived: where the axis has its 0.
    """

    arrived_ts: int = 0

    @property
    def counts(self) -> str:
        """What the axis counts."""
        return "seconds" if self._is_long else "milliseconds"

    @property
    def _is_long(self) -> bool:
        return self.length_ms >= LONG_MS

    @property
    def zero(self) -> float:
        """Where the request arrived, in ms since the window's start."""
        return (self.arrived_ts - self.start_ts) / 1e6

    def ticks(self) -> list[float]:
        """Returns round numbers of milliseconds since the arrival, as ms since the window's start.

        A window may begin before the arrival: 0 is always among them.
        """
        step = self._tick_ms()
        first = -int(self.zero // step)
        last = int((self.length_ms - self.zero) // step)
        return [round(self.zero + i * step, 6) for i in range(first, last + 1)]

    def _label(self, ticks: list[float]) -> str:
        since = f"datum.value - {self.zero!r}"
        spec = ",.0f" if self._tick_ms() >= 1 else ",.3~f"
        if self._is_long:  # rounded: 3.9999 s would else have all its digits
            since, spec = f"round({since}) / 1000", ",.3~f"
        return f"replace(format({since}, '{spec}'), /^−0$/, '0')"
