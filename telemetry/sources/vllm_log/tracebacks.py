"""Tracebacks: many lines of which one counts, the last. The others are swallowed.

Each process has its own, since their lines are interleaved. A traceback begins with its own words
and ends with the first line that begins at the margin and is no part of a chain.
"""

from __future__ import annotations

from telemetry.sources.vllm_log.errors import Event, exception_event, is_exception_type

_BEGINNING = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_LONGEST = 2_000
"""Lines after which a traceback without an end is given up."""

_MOST_OPEN = 1_000
"""Processes whose tracebacks are under way at once."""


class Tracebacks:
    """The tracebacks of the processes of one file."""

    def __init__(self) -> None:
        self._open: dict[str | None, int] = {}
        """Lines of the traceback so far, by process."""

    def take(self, process: str | None, message: str) -> Event | bool:
        """Takes a line of a process.

        Returns:
            What the traceback was about, at its end; True for another line of one, which is
            swallowed; False for a line of none.
        """
        text = message.lstrip(" +|")
        if text.startswith(_BEGINNING):
            if len(self._open) >= _MOST_OPEN:
                self._open.clear()
            self._open[process] = 0
            return True
        length = self._open.get(process)
        if length is None:
            return text.startswith(_CHAIN)
        if length >= _LONGEST:
            del self._open[process]
            return False
        self._open[process] = length + 1
        if message[:1] in (" ", "\t", "^", "") or text.startswith(_CHAIN):
            return True
        name, _, rest = message.partition(": ")
        del self._open[process]
        if is_exception_type(name.rstrip(":")):
            return exception_event(name.rstrip(":"), rest)
        return False
