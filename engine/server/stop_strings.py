"""Finds stop strings in a text that arrives in pieces, wherever the pieces are cut."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text on up to the first stop string, which itself is not passed on.

    The end of a piece may be the beginning of a stop string; exactly that much is held back until
    the next piece, or the end, decides.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """Returns the text that is safe to pass on. Nothing is passed on after a stop string."""
        if not self._stops or self.found:
            return "" if self.found else text
        text = self._held + text
        start = self._earliest(text)
        if start is not None:
            self.found = True
            self._held = ""
            return text[:start]
        num_held = self._num_undecided(text)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def release(self) -> str:
        """Returns what was held back, since nothing more comes."""
        held, self._held = self._held, ""
        return held

    def _earliest(self, text: str) -> int | None:
        starts = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        return min(starts, default=None)

    def _num_undecided(self, text: str) -> int:
        """Returns the length of the longest end of `text` that begins a stop string."""
        longest = min(len(text), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
