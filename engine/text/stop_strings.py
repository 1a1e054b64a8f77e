"""Finds stop strings in a text that arrives in pieces, wherever the pieces are cut."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text on up to the stop string that is complete first.

    The end of a piece may be the beginning of a stop string; exactly that much is held back until
    the next piece, or the end, decides.

    Args:
        include: whether the stop string itself is passed on too.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops = tuple(stops)
        self._include = include
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """Returns the text that is safe to pass on. Nothing is passed on after a stop string."""
        if not self._stops or self.found:
            return "" if self.found else text
        text = self._held + text
        stop = self._first_complete(text)
        if stop is not None:
            self.found = True
            self._held = ""
            start, end = stop
            return text[: end if self._include else start]
        num_held = self._num_undecided(text)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def release(self) -> str:
        """Returns what was held back, since nothing more comes."""
        held, self._held = self._held, ""
        return held

    def _first_complete(self, text: str) -> tuple[int, int] | None:
        """Returns where the stop string begins and ends that ends first: the longest such one.

        That one is found wherever the pieces are cut; the one that begins first is not.
        """
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        end, start = min(found, default=(0, 0))
        return (start, end) if found else None

    def _num_undecided(self, text: str) -> int:
        """Returns the length of the longest end of `text` that begins a stop string."""
        longest = min(len(text), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
