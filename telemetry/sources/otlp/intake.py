"""What both servers do with a message that came over the wire.

One message is unpacked at a time, whoever sends: what a small one unfolds to is bounded that way.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from telemetry.exporters.attributes import bounded
from telemetry.sources.otlp.decoding import (
    MOST_SPANS,
    ExportRequest,
    NotOtlpError,
    count_spans,
)
from telemetry.sources.otlp.spans import Span, Taken, take_apart
from telemetry.sources.rows import SourceRows

EARLIEST_NS = 24 * 3600 * 10**9
"""How long ago a span may have ended. Exporters try again for minutes."""
LATEST_NS = 3600 * 10**9
"""How far ahead of ours the clock of a sender may be."""
MOST_ENGINES = 1_000
"""Services that one collector tells apart."""


class LogBehindError(Exception):
    """The step log takes no more rows for now; the sender should try again."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a message: how many spans were refused, and why; a partial success."""

    num_refused: int = 0
    reason: str = ""


class Intake:
    """Takes messages from the threads of servers, and gives rows to the collector."""

    def __init__(self, rows: SourceRows, clock: Callable[[], int] = time.time_ns) -> None:
        self._rows = rows
        self._clock = clock
        self._lock = threading.Lock()
        self._described: set[int] = set()
        self._num_taken = 0
        self._num_foreign = 0
        self._num_garbled = 0
        self._refused: Counter[str] = Counter()
        self._last_ns: int | None = None

    def take(self, payload: bytes, decode: Callable[[bytes], ExportRequest]) -> Receipt:
        """Takes a message; returns what the sender is told.

        Raises:
            NotOtlpError: It cannot be read; sending it again does not help.
            LogBehindError: Nothing of it was taken; sending it again may help.
        """
        with self._lock:
            now = self._clock()
            try:
                message = decode(payload)
                if (number := count_spans(message)) > MOST_SPANS:
                    raise NotOtlpError(
                        f"{number:,} spans in one message: {MOST_SPANS:,} are taken at once"
                    )
            except NotOtlpError:
                self._num_garbled += 1
                raise
            taken = take_apart(message, earliest_ts=now - EARLIEST_NS, latest_ts=now + LATEST_NS)
            self._store(taken)
            self._num_foreign += taken.num_foreign
            self._refused += taken.refused
            return Receipt(taken.refused.total(), "; ".join(taken.refused))

    def refuse(self) -> None:
        """Counts a message that was turned away unread."""
        with self._lock:
            self._num_garbled += 1

    def _store(self, taken: Taken) -> None:
        rows = [span.row for span in taken.spans if self._is_known(span)]
        if strange := len(taken.spans) - len(rows):
            taken.refused[f"more than {MOST_ENGINES:,} services sent spans"] += strange
        num_taken = self._rows.add("engine_spans", rows)
        if rows and not num_taken:
            raise LogBehindError
        if left := len(rows) - num_taken:
            taken.refused["the step log does not take rows as fast as they come"] += left
        self._num_taken += num_taken
        if num_taken:
            self._last_ns = self._clock()

    def _is_known(self, span: Span) -> bool:
        """Returns whether the engine of a span is described, or can be now."""
        if span.engine in self._described:
            return True
        if len(self._described) >= MOST_ENGINES:
            return False
        self._described.add(span.engine)
        self._rows.describe(span.engine, span.description())
        return True

    def status(self) -> str:
        """Returns what came, in a line."""
        with self._lock:
            parts = [f"{self._num_taken:,} spans of vLLM"]
            if self._last_ns is not None:
                parts.append(f"the last {(self._clock() - self._last_ns) / 1e9:,.1f} s ago")
            if self._num_foreign:
                parts.append(f"{self._num_foreign:,} of others, not kept")
            if self._refused:
                why = bounded("; ".join(self._refused))
                parts.append(f"{self._refused.total():,} refused ({why})")
            if self._num_garbled:
                parts.append(f"{self._num_garbled:,} message(s) that are no OTLP, or too large")
        return ", ".join(parts)
