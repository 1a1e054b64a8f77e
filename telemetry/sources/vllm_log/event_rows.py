"""Events on their way into `log_lines`: which engine they are of, and when they were."""

from __future__ import annotations

from typing import Any

from telemetry.sources.vllm_log.engines import LogEngines
from telemetry.sources.vllm_log.errors import LONGEST_TEXT, Event
from telemetry.sources.vllm_log.heads import dp_rank
from telemetry.sources.vllm_log.sample_rows import SOURCE

MOST_TIMELESS = 100
"""Events before the first time of a log that are kept until there is one."""


class EventRows:
    """Makes rows of the events of one log."""

    def __init__(self, engines: LogEngines) -> None:
        self._engines = engines
        self._timeless: list[tuple[str | None, dict[str, Any]]] = []
        self._is_shutting_down = False

    def take(
        self, event: Event, number: int, process: str | None, level: str | None, ts: int | None
    ) -> str:
        """Takes an event of a line; returns the kind under which it is kept."""
        if event.kind == "engine_starting":
            self._is_shutting_down = False
        elif event.kind == "shutdown":
            self._is_shutting_down = True
        elif event.kind == "engine_dead" and self._is_shutting_down:
            event = Event("shutdown", event.text)  # the servers find the engine gone, as asked for
        rank = dp_rank(process)
        if rank is None and event.kind == "engine_starting":
            rank = 0
        row = {
            "ts": ts,
            "source": SOURCE,
            "line": number,
            "process": process,
            "level": level,
            "kind": event.kind,
            "text": event.text[:LONGEST_TEXT],
        }
        self._put(None if rank is None else str(rank), row)
        return event.kind

    def time_is(self, ts: int) -> None:
        """Gives the events before the first time that time."""
        timeless, self._timeless = self._timeless, []
        for rank, row in timeless:
            self._put(rank, {**row, "ts": ts})

    def _put(self, rank: str | None, row: dict[str, Any]) -> None:
        if row["ts"] is not None:
            self._engines.add(rank, "log_lines", row)
        elif len(self._timeless) < MOST_TIMELESS:
            self._timeless.append((rank, row))
