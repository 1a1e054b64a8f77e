"""How many points a chart may have, and how long a bin is."""

from __future__ import annotations

from diagnose.reading import NS, Scope

MAX_POINTS = 2_000
"""Most rows that a panel is drawn from."""
MAX_RUNS = 1_500
"""Changes of state up to which each is drawn; the ends of runs and of gaps come on top."""
EDGES = 4
"""Stretches of a series that lie across an edge of the window or only close it."""
NUM_BINS = 70
"""Bars over the width of a window, about."""
MAX_MARKS = 500
"""More arrivals than this are counted per bin instead of marked one by one."""
MAX_EXACT_STEPS = 20_000
"""Rows of steps up to which every change of state is looked for."""
MAX_STOPS = 400
"""Moments that the cursor can stop at."""


def bin_ns(scope: Scope) -> int:
    """Returns the length of a bar: the window's 70th part, rounded up to 1, 2 or 5 of a power."""
    return round_up(max(1, scope.duration_ns // NUM_BINS))


def grain_ns(scope: Scope, num_series: int = 4) -> int:
    """Returns the length of a stretch where changes of state are too many to draw."""
    num_grains = MAX_POINTS // max(num_series, 1) - EDGES
    return max(1, -(-scope.duration_ns // num_grains))


_CLOCK_NS: tuple[int, ...] = tuple(
    seconds * NS for seconds in (60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
)
"""Above half a minute people count in minutes, hours and days."""


def round_up(ns: int) -> int:
    """Returns the next length that a clock has: 1, 2 or 5 of a power, then minutes and hours."""
    if ns > 30 * NS:
        days = -(-ns // _CLOCK_NS[-1])
        return next((length for length in _CLOCK_NS if length >= ns), days * _CLOCK_NS[-1])
    power = int(10 ** (len(str(ns)) - 1))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= ns)


def x_of(scope: Scope, column: str = "ts") -> str:
    """Returns SQL for milliseconds since the window's start."""
    return f"({column} - {scope.start_ts}) / 1e6"


def bin_of(length_ns: int, column: str = "ts") -> str:
    """Returns SQL for the bin that a moment lies in.

    Bins begin at round times of the clock: a window that moves on does not shift them.
    """
    return f"{column} // {length_ns}"


def x_of_bin(scope: Scope, length_ns: int, number: str = "bin") -> str:
    """Returns SQL for where a bin begins, in milliseconds since the window's start."""
    return f"(({number}) * {length_ns} - {scope.start_ts}) / 1e6"
