"""Who runs in a step, followed through an engine's events: admitted, resumed, preempted, ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from telemetry.exporters.totals import LogReader
from telemetry.vocabulary import EventKind, FinishReason

LOOKBACK_NS = 3_600 * 1_000_000_000
"""A request that was admitted longer than this before the following began is not known."""
MOST_MOVES = 10_000
"""Moves read from the log at once."""

_JOINS = (EventKind.admitted, EventKind.resumed)
_RAN_TO_END = (FinishReason.stop, FinishReason.length)
_KINDS = ", ".join(str(int(kind)) for kind in (*_JOINS, EventKind.preempted, EventKind.finished))
_MOVES = """
SELECT seq, step, request, kind, reason FROM request_events
WHERE engine = {engine}::UBIGINT AND seq >= {seq} AND request IS NOT NULL AND kind IN ({kinds})
ORDER BY seq LIMIT {limit}
"""
_BEFORE = """
SELECT request, arg_max(kind, seq) AS kind, max(seq) AS seq
FROM request_events
WHERE engine = {engine}::UBIGINT AND step < {step} AND request IS NOT NULL AND kind IN ({kinds})
  AND ts >= (SELECT min(ts) FROM steps WHERE engine = {engine}::UBIGINT AND step >= {step})
    - {lookback}
GROUP BY request
ORDER BY seq
"""


@dataclass(frozen=True, slots=True)
class _Move:
    seq: int
    step: int
    request: int
    kind: int
    reason: int | None

    @property
    def joins(self) -> bool:
        return self.kind in _JOINS

    @property
    def still_runs(self) -> bool:
        """The step that ends a request is one of its own, unless it was aborted before."""
        return self.kind == EventKind.finished and self.reason in _RAN_TO_END


class RunningRequests:
    """The running requests of one engine, step by step, from `step` on. Steps must not go back."""

    def __init__(self, log: LogReader, engine: int, step: int) -> None:
        self._log = log
        self._engine = engine
        self._running: dict[int, None] = {}
        self._moves: deque[_Move] = deque()
        self._next_seq = 0
        self._begin(step)

    def _begin(self, step: int) -> None:
        sql = _BEFORE.format(engine=self._engine, step=step, kinds=_KINDS, lookback=LOOKBACK_NS)
        for row in self._log.query(sql).to_pylist():
            self._next_seq = row["seq"] + 1
            if row["kind"] in _JOINS:
                self._running[row["request"]] = None

    def in_step(self, step: int) -> list[int]:
        """Returns the requests that run in a step, those admitted last first."""
        leave_after = []
        while (move := self._next(step)) is not None:
            self._moves.popleft()
            if move.joins:
                self._running[move.request] = None
            elif move.still_runs and move.step == step:
                leave_after.append(move.request)
            else:
                self._running.pop(move.request, None)
        requests = list(reversed(self._running))
        for request in leave_after:
            self._running.pop(request, None)
        return requests

    def _next(self, step: int) -> _Move | None:
        """Returns the next move that happened up to a step."""
        if not self._moves:
            self._read()
        return self._moves[0] if self._moves and self._moves[0].step <= step else None

    def _read(self) -> None:
        sql = _MOVES.format(engine=self._engine, seq=self._next_seq, kinds=_KINDS, limit=MOST_MOVES)
        rows = self._log.query(sql).to_pylist()
        self._moves.extend(_Move(**row) for row in rows)
        if rows:
            self._next_seq = rows[-1]["seq"] + 1
