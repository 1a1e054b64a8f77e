"""When requests got their tokens: the first, the last, and the longest wait between two.

While the same requests get tokens in each update, as in plain decoding, nothing is done for any of
them but to compare two lists: only those gaps are remembered that may still be the longest since
somebody joined, and a request's own times are worked out when it leaves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from telemetry.sources.vllm.lives import Life


class TokenTimes:
    """Keeps the times of tokens.

    Invariants:
        `_gaps` falls from the first to the last; `_updates` are the updates that ended them.

    Args:
        on_first: told of a request's first token, and of its first after each resumption.
    """

    def __init__(self, on_first: Callable[[Life, int], None]) -> None:
        self._on_first = on_first
        self._ids: list[str] | None = None
        self._joined: dict[str, tuple[Life, int]] = {}
        """Requests that got a token in the last update, and the update since which they do."""
        self._update = 0
        self._last_ts = 0
        self._updates: list[int] = []
        self._gaps: list[int] = []

    def took(self, ids: list[str], lives: dict[str, Life], ts: int) -> None:
        """Requests got tokens in an update at `ts`."""
        if not ids:
            return
        if ids == self._ids:
            self._advance(ts)
            return
        getting = set(ids)
        for request_id in [each for each in self._joined if each not in getting]:
            self.leave(request_id)
        self._advance(ts)
        for request_id in ids:
            life = lives.get(request_id)
            if life is not None and request_id not in self._joined:
                self._join(request_id, life, ts)
        self._ids = ids

    def leave(self, request_id: str) -> None:
        """A request goes its own way: writes its times up to now."""
        found = self._joined.pop(request_id, None)
        if found is None:
            return
        self._ids = None
        life, joined = found
        life.last_token_ts = self._last_ts
        first = bisect_right(self._updates, joined)
        if first < len(self._gaps):
            _lengthen(life, self._gaps[first])

    def _join(self, request_id: str, life: Life, ts: int) -> None:
        if life.first_token_ts is None or life.is_catching_up:
            self._on_first(life, ts)
        if life.first_token_ts is None:
            life.first_token_ts = ts
        if life.last_token_ts is not None:
            _lengthen(life, ts - life.last_token_ts)
        life.is_catching_up = False
        life.last_token_ts = ts
        self._joined[request_id] = life, self._update

    def _advance(self, ts: int) -> None:
        gap = ts - self._last_ts
        self._update += 1
        self._last_ts = ts
        gaps, updates = self._gaps, self._updates
        while gaps and gaps[-1] <= gap:
            gaps.pop()
            updates.pop()
        gaps.append(gap)
        updates.append(self._update)


def _lengthen(life: Life, gap_ns: int) -> None:
    if life.max_itl_ns is None or gap_ns > life.max_itl_ns:
        life.max_itl_ns = gap_ns
