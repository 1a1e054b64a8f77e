"""The time axis of one request's story: milliseconds since it arrived, not times of day."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.charts.axis import TimeAxis


@dataclass(frozen=True, slots=True)
class SinceArrival(TimeAxis):
    """A window around the life of a request.

    Attributes:
        arrived_ts: when it arrived: where the axis has its 0.
    """

    arrived_ts: int = 0

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
        spec = ",.0f" if self._tick_ms() >= 1 else ",.3~f"
        return f"replace(format(datum.value - {self.zero!r}, '{spec}'), '−0', '0')"
