"""The longest time between two tokens of a request, for requests that all get theirs together."""

from __future__ import annotations

from bisect import bisect_right

from engine.request import Request


class TokenGaps:
    """Remembers just those gaps that may still be the longest since some moment.

    A gap is forgotten once one as long follows: what is kept falls from the first to the last, and
    the longest since a moment is the first one after it.
    """

    def __init__(self) -> None:
        self._last_ts: int | None = None
        self._last_step = 0
        self._steps: list[int] = []
        self._gaps: list[int] = []
        self._joined: dict[Request, int] = {}
        self._late: dict[Request, None] = {}

    def join(self, request: Request, step: int) -> None:
        """A request gets its tokens together with the others, after the step that was last."""
        self._joined[request] = step
        if request.times.last_token != self._last_ts:
            self._late[request] = None

    def leave(self, request: Request) -> None:
        """A request goes its own way again."""
        del self._joined[request]
        self._late.pop(request, None)

    def took(self, step: int, ts: int) -> None:
        """All got a token."""
        for request in self._late:
            if request.times.last_token is not None:
                _lengthen(request, ts - request.times.last_token)
        self._late.clear()
        if self._last_ts is not None:
            gap = ts - self._last_ts
            while self._gaps and self._gaps[-1] <= gap:
                self._gaps.pop()
                self._steps.pop()
            self._gaps.append(gap)
            self._steps.append(step)
        self._last_ts, self._last_step = ts, step

    def settle(self, request: Request) -> None:
        """Writes the times of a request's last token and longest gap."""
        joined = self._joined[request]
        if joined == self._last_step:
            return  # no token since
        request.times.last_token = self._last_ts
        first = bisect_right(self._steps, joined)
        if first < len(self._gaps):
            _lengthen(request, self._gaps[first])


def _lengthen(request: Request, gap_ns: int) -> None:
    request.times.max_itl_ns = max(request.times.max_itl_ns or 0, gap_ns)
