"""Which spans go next, and how far each engine has been exported.

Nothing is kept in memory that waits: the log is the queue. Spans are read in small batches and
sent, and only when the receiver has acknowledged a batch does the position move on; the collector
writes it into the log (table `exports`). So

* a receiver that is down costs no memory and loses nothing for an hour; what is older when it comes
  back is passed over and counted,
* a collector that ends and starts again goes on where it was: each span is sent once,
* a collector that is killed sends again what was acknowledged in its last moments, under the same
  ids, which are hashes of what the span is of: a receiver that knows them sees them once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from telemetry.exporters.excerpt import Excerpt
from telemetry.exporters.request_spans import Ended, RequestSpans
from telemetry.exporters.sdk_spans import SpanMaker
from telemetry.exporters.step_spans import StepSpans
from telemetry.exporters.totals import LogReader

MAX_AGE_NS = 3_600 * 1_000_000_000
"""What ended longer ago than this is not exported any more."""
MOST_SPANS = 512
"""Spans of one message: some 300 KB, where receivers take 4 MB."""

_POSITIONS = """
SELECT engine, max(next_event) AS next_event, max(next_step) AS next_step
FROM exports GROUP BY engine
"""
_ENGINES = """
SELECT engine, bool_or(closed) AS closed FROM drains GROUP BY engine HAVING max(ts) >= {since}
"""


@dataclass(slots=True)
class _Position:
    """How far an engine has been exported."""

    next_event: int = 0
    next_step: int = 0
    is_known: bool = False
    """It has been exported before: what is missing now would have been sent."""
    is_done: bool = False
    """The engine has ended, and all of it was sent."""


class SpanExport:
    """Sends requests that have ended, and a sample of the steps, each once.

    `work` belongs to one thread; the rest may be called by another.
    """

    def __init__(
        self,
        log: LogReader,
        send: Callable[[Sequence[ReadableSpan]], bool],
        *,
        step_ratio: float = 0.0,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        """`send` sends spans and says whether they were acknowledged."""
        self._log = log
        self._send = send
        self._now = now
        self._maker = SpanMaker(log)
        excerpt = Excerpt()
        self._requests = RequestSpans(log, self._maker, excerpt)
        self._steps = StepSpans(log, self._maker, excerpt, step_ratio) if step_ratio > 0 else None
        self._lock = threading.Lock()
        self._positions: dict[int, _Position] | None = None
        self._unsaved: set[int] = set()
        self.num_spans = 0
        """Spans acknowledged."""
        self.num_failures = 0
        """Messages not acknowledged."""
        self.num_passed_over = 0
        """Requests not exported: too old, or without an arrival in the log."""
        self.last_sent_ns: int | None = None

    def work(self) -> bool:
        """Sends all that is new; returns whether the receiver took it.

        Raises:
            StepscopeError: The log cannot be read now. What was not sent is sent next time.
        """
        since = self._now() - MAX_AGE_NS
        if self._positions is None:
            self._resume()
        return all(
            self._requests_of(engine, since) and self._steps_of(engine, since, is_closed)
            for engine, is_closed in self._engines(since)
        )

    def unsaved(self) -> list[dict[str, Any]]:
        """Returns a row of `exports` for every engine whose position has moved."""
        with self._lock:
            positions = self._positions or {}
            return [
                {
                    "engine": engine,
                    "ts": self._now(),
                    "next_event": positions[engine].next_event,
                    "next_step": positions[engine].next_step,
                }
                for engine in sorted(self._unsaved)
            ]

    def saved(self, rows: Sequence[dict[str, Any]]) -> None:
        """Hears that these rows are in the log."""
        with self._lock:
            positions = self._positions or {}
            for row in rows:
                position = positions[row["engine"]]
                if (position.next_event, position.next_step) == (
                    row["next_event"],
                    row["next_step"],
                ):
                    self._unsaved.discard(row["engine"])

    def _resume(self) -> None:
        rows = self._log.query(_POSITIONS).to_pylist()
        with self._lock:
            self._positions = {
                row["engine"]: _Position(row["next_event"], row["next_step"], is_known=True)
                for row in rows
            }

    def _engines(self, since: int) -> Iterator[tuple[int, bool]]:
        """Yields engines that may have something new, and whether each has ended."""
        rows = self._log.query(_ENGINES.format(since=since)).to_pylist()
        ended = {row["engine"]: bool(row["closed"]) for row in rows}
        assert self._positions is not None
        for engine in [*ended, *(set(self._positions) - set(ended))]:
            with self._lock:
                position = self._positions.setdefault(engine, _Position())
            if not position.is_done:
                yield engine, ended.get(engine, True)

    def _requests_of(self, engine: int, since: int) -> bool:
        position = self._position(engine)
        while ended := self._requests.ended(engine, position.next_event):
            if ended[0].ts < since:
                self._pass_over(engine, since)
            elif not self._send_requests(engine, ended):
                return False
        return True

    def _send_requests(self, engine: int, ended: Sequence[Ended]) -> bool:
        num_without_arrival = self._requests.make(engine, ended)
        if not self._send_made():
            return False
        self.num_passed_over += num_without_arrival
        self._move(engine, next_event=ended[-1].seq + 1)
        return True

    def _pass_over(self, engine: int, since: int) -> None:
        position = self._position(engine)
        num, next_event = self._requests.older_than(engine, position.next_event, since)
        if position.is_known:
            self.num_passed_over += num
        self._move(engine, next_event=next_event)

    def _steps_of(self, engine: int, since: int, is_closed: bool) -> bool:
        position = self._position(engine)
        while self._steps is not None:
            next_step = self._steps.make(engine, position.next_step, since)
            if next_step is None:
                break
            if not self._send_made():
                self._steps.forget(engine)
                return False
            self._move(engine, next_step=next_step)
        if is_closed and self._steps is not None:
            self._steps.forget(engine)
        position.is_done = is_closed
        return True

    def _send_made(self) -> bool:
        """Sends the spans that were made, in messages of bounded size."""
        spans = self._maker.take()
        for begin in range(0, len(spans), MOST_SPANS):
            chunk = spans[begin : begin + MOST_SPANS]
            if not self._send(chunk):
                self.num_failures += 1
                return False
            self.num_spans += len(chunk)
            self.last_sent_ns = self._now()
        return True

    def _position(self, engine: int) -> _Position:
        assert self._positions is not None
        return self._positions[engine]

    def _move(
        self, engine: int, *, next_event: int | None = None, next_step: int | None = None
    ) -> None:
        position = self._position(engine)
        with self._lock:
            position.next_event = position.next_event if next_event is None else next_event
            position.next_step = position.next_step if next_step is None else next_step
            position.is_known = True
            self._unsaved.add(engine)
