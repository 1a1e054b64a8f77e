"""The tokens of all requests that are under way, in one array, so that a step's are one gather."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

_SPARE = 64
"""Places behind a text, for drafts beyond its end; nobody keeps those."""


class TokenArena:
    """Texts by request, from `add` to `drop`.

    Args:
        num_requests: requests are numbered below it.
    """

    def __init__(self, num_requests: int) -> None:
        self._tokens = np.zeros(1 << 16, dtype=np.int32)
        self._begin = np.zeros(num_requests, dtype=np.int64)
        self._length: dict[int, int] = {}
        self._end = 0

    def add(self, request: int, tokens: array[int]) -> None:
        """Takes in the whole text of a request: prompt, and outputs that are to come."""
        length = len(tokens) + _SPARE
        if self._end + length > len(self._tokens):
            self._make_room(length)
        self._tokens[self._end : self._end + len(tokens)] = tokens
        self._begin[request] = self._end
        self._length[request] = length
        self._end += length

    def drop(self, request: int) -> None:
        """Forgets a text."""
        del self._length[request]

    def next_tokens(
        self, requests: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """Returns one token of each request; both `[num_requests]`."""
        found: npt.NDArray[np.int32] = self._tokens[self._begin[requests] + positions]
        return found

    def tokens(self, request: int, begin: int, count: int) -> list[int]:
        """Returns `count` tokens of a text from a position on."""
        first = int(self._begin[request]) + begin
        found: list[int] = self._tokens[first : first + count].tolist()
        return found

    def _make_room(self, length: int) -> None:
        """Moves what is still needed to the front of a larger array."""
        needed = sum(self._length.values()) + length
        moved = np.zeros(max(len(self._tokens), 2 * needed), dtype=np.int32)
        end = 0
        for request, count in self._length.items():
            begin = int(self._begin[request])
            moved[end : end + count] = self._tokens[begin : begin + count]
            self._begin[request] = end
            end += count
        self._tokens, self._end = moved, end
