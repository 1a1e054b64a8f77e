"""Times as a log spells them, and what they are in UTC.

vLLM writes `11-29 12:00:00`: no year, no zone, whole seconds. The year is inferred: the first line
is taken to lie in the newest year in which it is not later than the file itself, and where the
months jump back the next year begins. The zone is what `--tz` says. Lines of the same second keep
their order: each is put a microsecond after the one before, and these microseconds mean nothing
else. Where the environment wrote a better time before the line, that one is used.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from telemetry.errors import StepscopeError

NS = 10**9
SLACK = timedelta(days=1)
"""A file may be a little older than its last line: clocks and zones differ."""
_HALF_A_YEAR = 6
_SECONDS_KEPT = 64


class Moment(NamedTuple):
    """A time as it is written. What is not written is None."""

    year: int | None
    month: int
    day: int
    hour: int
    minute: int
    second: int
    nanos: int | None = None
    offset_seconds: int | None = None


def zone_named(name: str) -> tzinfo:
    """Returns a time zone.

    Raises:
        StepscopeError: There is none of that name on this machine.
    """
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise StepscopeError(
            f"--tz is {name!r}, which is no time zone here: write a name like Europe/Berlin, or UTC"
        ) from None


class LogClock:
    """Turns the moments of one file into ns since the Unix epoch, in their order."""

    def __init__(self, zone: tzinfo, file_ns: int, first_year: int | None = None) -> None:
        """Starts a file.

        Args:
            zone: zone of the times that name none.
            file_ns: when the file was last written, ns since the Unix epoch.
            first_year: year of the first line, where somebody knows it.
        """
        self._zone = zone
        self.file_ns = file_ns
        self._newest = datetime.fromtimestamp(file_ns / NS, UTC) + SLACK
        self.year = first_year
        """Year of the newest line that names none; None before the first."""
        self.is_inferred = False
        """Whether a year was inferred."""
        self.is_beyond_file = False
        """Whether a line would be later than the file: the years are wrong by at least one."""
        self.used_zone = False
        """Whether a time named no zone."""
        self.has_whole_seconds = False
        """Whether a time was no more exact than a second."""
        self._first_year = first_year
        self._month = 0
        self._minute: tuple[object, ...] = ()
        self._minute_ns = 0
        self._num_in_second: dict[int, int] = {}

    def ns_of(self, moment: Moment) -> int | None:
        """Returns the time of a line; None where there is no such day or hour."""
        minute = (*moment[:5], moment.offset_seconds)
        if minute != self._minute:
            start = self._start_of(moment)
            if start is None:
                return None
            self._minute, self._minute_ns = minute, start
        ns = self._minute_ns + moment.second * NS
        if moment.nanos is not None:
            return ns + moment.nanos
        self.has_whole_seconds = True
        return ns + self._place_in(ns)

    def _start_of(self, moment: Moment) -> int | None:
        """Returns when the minute of a moment began."""
        zone: tzinfo = self._zone
        if moment.offset_seconds is None:
            self.used_zone = True
        else:
            zone = timezone(timedelta(seconds=moment.offset_seconds))
        try:
            year = moment.year or self._year_of(moment)
            start = datetime(*(year, *moment[1:5]), tzinfo=zone)
        except ValueError:
            return None
        if moment.year is None and start > self._newest:
            self.is_beyond_file = True
        return round(start.timestamp()) * NS

    def _year_of(self, moment: Moment) -> int:
        if self.year is None:
            self.year = self._newest_year(moment)
        elif moment.month + _HALF_A_YEAR < self._month:
            self.year += 1
        elif self._month and moment.month > self._month + _HALF_A_YEAR:
            return self.year - 1  # a straggler of the year before
        self.is_inferred = self._first_year is None
        self._month = moment.month
        return self.year

    def _newest_year(self, moment: Moment) -> int:
        """Returns the newest year in which the moment is not later than the file.

        Raises:
            ValueError: There is no such day in any year.
        """
        for year in range(self._newest.year + 1, self._newest.year - 9, -1):
            try:
                if datetime(*(year, *moment[1:6]), tzinfo=self._zone) <= self._newest:
                    return year
            except ValueError:
                continue  # 29 February
        raise ValueError(moment)

    def _place_in(self, second_ns: int) -> int:
        """Returns the line's place among those of its second, in ns."""
        place = self._num_in_second.get(second_ns, 0)
        self._num_in_second[second_ns] = place + 1
        if len(self._num_in_second) > _SECONDS_KEPT:
            self._num_in_second.pop(next(iter(self._num_in_second)))
        return min(place, 999_999) * 1000
