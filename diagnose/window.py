"""Which part of a log is looked at, and what lies in it.

Without a wish it is the whole of a closed log and the last 15 minutes of a live one; `--since`
counts back from the newest row, never from the clock on the wall: a log of last week answers
`--since 10m` with its own last ten minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from diagnose.reading import NS, QueryLog, read_row, read_rows

LIVE_WINDOW_NS = 15 * 60 * NS
_UNITS_NS = {"ms": NS // 1000, "s": NS, "m": 60 * NS, "h": 3600 * NS, "d": 86400 * NS}
_TIMES = (
    ("steps", "ts", "coalesce(updated_ts, ts)"),
    ("request_arrivals", "ts", "ts"),
    ("request_events", "ts", "ts"),
    ("request_finishes", "ts", "ts"),
    ("heartbeats", "ts", "ts"),
    ("samples", "ts", "ts"),
    ("log_lines", "ts", "ts"),
    ("engine_spans", "coalesce(start_ts, ts)", "ts"),
)
_STARTS = (
    "engines ANTI JOIN ((SELECT engine FROM samples UNION SELECT engine FROM log_lines) "
    "EXCEPT SELECT engine FROM steps) USING (engine)",
    "started_ts",
    "started_ts",
)
"""Starts of engines of which more than scrapes and lines is known: those begin with the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of the log (ns since the Unix epoch, both ends included)."""

    start_ts: int
    end_ts: int
    is_live: bool = False

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ts - self.start_ts


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Start and newest row of one engine in the whole log."""

    engine: int
    first_ts: int
    newest_ts: int


def parse_duration(text: str, name: str = "--since") -> int:
    """Returns nanoseconds of `90s`, `10m`, `1h`, `500ms` or `2d`; `name` is the flag's.

    Raises:
        ValueError: for anything else; the message says what is allowed.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{name} is {text!r}: write a number above 0 with ms, s, m, h or d (10m)")
    return int(float(match[1]) * _UNITS_NS[match[2]])


def read_extents(log: QueryLog) -> list[Extent]:
    """Returns each engine's start and newest row, in order of their start.

    An engine starts where its description says, also when its first rows are lost.
    """
    parts = " UNION ALL ".join(
        f"SELECT engine, min({first}) AS first_ts, max({last}) AS newest_ts "
        f"FROM {table} GROUP BY engine"
        for table, first, last in (*_TIMES, _STARTS)
    )
    sql = (
        "SELECT engine, min(first_ts) AS first_ts, max(newest_ts) AS newest_ts "
        f"FROM ({parts}) GROUP BY engine ORDER BY first_ts, engine"
    )
    return [Extent(**row) for row in read_rows(log, sql)]


def choose_window(log: QueryLog, since_ns: int | None = None, is_live: bool = False) -> Window:
    """Returns the window to look at; an empty log gives the empty window at 0."""
    extents = read_extents(log)
    if not extents:
        return Window(start_ts=0, end_ts=0, is_live=is_live)
    first = min(extent.first_ts for extent in extents)
    newest = max(extent.newest_ts for extent in extents)
    if since_ns is None and is_live:
        since_ns = LIVE_WINDOW_NS
    start = first if since_ns is None else max(first, newest - since_ns)
    return Window(start_ts=start, end_ts=newest, is_live=is_live)


def engines_in(log: QueryLog, window: Window) -> list[int]:
    """Returns the engines that left a row in the window, in order of their first row."""
    return [
        extent.engine
        for extent in read_extents(log)
        if extent.first_ts <= window.end_ts and extent.newest_ts >= window.start_ts
    ]


def newest_ts_of(log: QueryLog, engine: int, end_ts: int) -> int | None:
    """Returns the newest moment up to `end_ts` at which the engine left a row."""
    parts = " UNION ALL ".join(
        f"SELECT max({last}) AS newest FROM {table} WHERE engine = {engine} AND ts <= {end_ts}"
        for table, _, last in _TIMES
    )
    newest = read_row(log, f"SELECT max(newest) AS newest FROM ({parts})")["newest"]
    return None if newest is None else min(int(newest), end_ts)
