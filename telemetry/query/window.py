"""Which stretch of a log `--since` and `--until` mean.

A length (`10m`) counts back from the log's newest row, never from the clock on the wall: a log of
last week answers `--since 1h` with its own last hour. A time of day (`14:02`) is that of the newest
row's day. Days and times are UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time

from telemetry.errors import QueryRefused
from telemetry.store import Log

NS_PER_SECOND = 1_000_000_000
LIVE_WINDOW_NS = 15 * 60 * NS_PER_SECOND
"""What is looked at of a live log unless somebody wishes otherwise."""

_UNITS_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_EXTENT = """
SELECT min(first_ts) AS first_ts, max(newest_ts) AS newest_ts FROM (
  SELECT min(ts) AS first_ts, max(coalesce(updated_ts, ts)) AS newest_ts FROM steps
  UNION ALL SELECT min(ts), max(ts) FROM request_events
  UNION ALL SELECT min(ts), max(ts) FROM request_arrivals
  UNION ALL SELECT min(ts), max(ts) FROM request_finishes
  UNION ALL SELECT min(ts), max(ts) FROM heartbeats
  UNION ALL SELECT min(ts), max(ts) FROM samples
  UNION ALL SELECT min(ts), max(ts) FROM log_lines
  UNION ALL SELECT min(ts), max(ts) FROM engine_spans
  UNION ALL SELECT min(ts), max(ts) FROM kv_events
  UNION ALL SELECT min(started_ts), max(started_ts) FROM engines
)
"""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a log, ns since the Unix epoch, both ends within it."""

    from_ns: int
    until_ns: int


def choose_window(log: Log, since: str | None, until: str | None) -> Window:
    """Returns what is meant; an empty log gives the empty window at 0.

    Without `since` it begins with a closed log, and 15 minutes before the end of a live one.

    Raises:
        QueryRefused: One of them is no time, or the end comes before the beginning.
    """
    (row,) = log.query(_EXTENT).to_pylist()
    if row["newest_ts"] is None:
        return Window(0, 0)
    first, newest = int(row["first_ts"]), int(row["newest_ts"])
    until_ns = newest if until is None else moment("--until", until, newest)
    if since is not None:
        from_ns = moment("--since", since, newest)
    else:
        from_ns = max(first, until_ns - LIVE_WINDOW_NS) if log.is_live else first
    if from_ns > until_ns:
        raise QueryRefused(
            f"the window ends before it begins: {_utc(from_ns)} to {_utc(until_ns)} UTC; "
            f"the log's newest row is of {_utc(newest)}"
        )
    return Window(from_ns, until_ns)


def moment(flag: str, text: str, newest_ns: int) -> int:
    """Returns the moment that a text means, in ns since the Unix epoch.

    Raises:
        QueryRefused: It means none.
    """
    text = text.strip()
    if match := _LENGTH.fullmatch(text):
        return newest_ns - int(float(match[1]) * _UNITS_NS[match[2]])
    try:
        if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", text):
            day = datetime.fromtimestamp(newest_ns // NS_PER_SECOND, UTC).date()
            return _ns(datetime.combine(day, time.fromisoformat(text)))
        return _ns(datetime.fromisoformat(text))
    except ValueError:
        raise QueryRefused(
            f"{flag} is {text!r}: write how far back from the log's newest row (90s, 10m, 1h), a "
            "time of its day (14:02), or a day and time in UTC (2025-11-29T14:02)"
        ) from None


def _ns(when: datetime) -> int:
    """Returns a moment in ns, without floats; one without a zone is UTC."""
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_SECOND + since.microseconds * 1_000


def _utc(ns: int) -> str:
    return datetime.fromtimestamp(ns // NS_PER_SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
