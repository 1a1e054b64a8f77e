"""One log file on its way into an import: each line to the one who knows it.

A line is taken by the first of: the content of a request (dropped), the periodic numbers, the
start, a traceback, an event. vLLM's other lines count as read and leave nothing. What begins in no
known way, or begins like a line of numbers and is none, counts as unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from telemetry.sources.importing import Import
from telemetry.sources.vllm_log import iterations, startup, stats
from telemetry.sources.vllm_log.engines import LogEngines
from telemetry.sources.vllm_log.errors import (
    Event,
    event_of,
    known_event,
    num_preemptions_told,
)
from telemetry.sources.vllm_log.event_rows import EventRows
from telemetry.sources.vllm_log.heads import Bare, Head, dp_rank, parse
from telemetry.sources.vllm_log.moments import LogClock
from telemetry.sources.vllm_log.prefixes import Unwrapper
from telemetry.sources.vllm_log.sample_rows import SampleRows
from telemetry.sources.vllm_log.shapes import shape_of
from telemetry.sources.vllm_log.tracebacks import Tracebacks

MOST_SHAPES = 1_000
"""Shapes of lines that are remembered as shown."""

_REQUEST_FILES = frozenset(("request_logger.py", "logger.py"))
_REQUEST = ("Received request", "Added request", "Generated response", "Prompt:", "Output:")
_UVICORN = re.compile(r"(INFO|WARNING|ERROR|CRITICAL): {2,}(.*)")
_NOISE = re.compile(
    r"\S{1,400}:\d+: \w*Warning: |.{0,200}\d%.{0,120}\[\d\d:\d\d|nanobind: "
    r"| - (?:leaked |\.\.\. skipped)"
)
"""Warnings of Python, bars of progress, complaints of a binding at its end."""
_ACCESS = re.compile(r"\S+ - \"[A-Z]{3,8} ")


class LogImporter:
    """Reads the lines of one file into an import."""

    def __init__(self, job: Import, name: str, clock: LogClock) -> None:
        self._told = job.told
        self.engines = LogEngines(job, name)
        self.samples = SampleRows(self.engines)
        self._events = EventRows(self.engines)
        self._clock = clock
        self._unwrapper = Unwrapper()
        self._tracebacks = Tracebacks()
        self._ts: int | None = None
        self._request_place: tuple[object, ...] | None = None
        self._is_after_request = False
        self._shapes: set[str] = set()

    def take(self, lines: Iterable[tuple[int, str]]) -> None:
        """Takes all lines of the file."""
        for number, line in lines:
            unwrapped = self._unwrapper.unwrap(line)
            if unwrapped is None:
                self._told.read("part")
                continue
            if unwrapped.host is not None:
                self.engines.host = unwrapped.host
            head = parse(unwrapped.text)
            moment = unwrapped.moment or (head.moment if isinstance(head, Head) else None)
            if moment is not None and (ts := self._clock.ns_of(moment)) is not None:
                self._set_time(ts)
            if isinstance(head, Head):
                self._headed(number, head)
            else:
                self._bare(number, head)
        if self._ts is None:
            self._set_time(self._clock.file_ns)
        self.engines.finish()

    def _headed(self, number: int, head: Head) -> None:
        place = (head.process, head.place, head.moment)
        is_request = head.file in _REQUEST_FILES or head.message.startswith(_REQUEST)
        if is_request or place == self._request_place:
            self._request_place = place
            self._is_after_request = True
            self._told.read("request")
            return
        self._is_after_request = False
        self._request_place = None
        if self._numbers(number, head) or self._start(number, head):
            return
        if stats.looks_like(head.message) or iterations.looks_like(head.message):
            self._told.unread(f"line {number:,}: {head.message}")
            return
        taken = self._tracebacks.take(head.process, head.message)
        if isinstance(taken, Event):
            self._event(number, head.process, head.level, taken)
        elif taken:
            self._told.read("traceback")
        elif (event := event_of(head.level, head.place, head.message)) is not None:
            self._event(number, head.process, head.level, event)
            total = num_preemptions_told(head.message)
            if total is not None and self._ts is not None:
                self.samples.take_preemptions(total, head.process, self._ts)
        else:
            self._told.read("other")

    def _bare(self, number: int, line: Bare) -> None:
        """Takes a line that does not begin as vLLM's do."""
        text = line.message
        if not text.strip():
            self._told.read("blank")
        elif match := _UVICORN.match(text):
            self._is_after_request = False
            self._uvicorn(number, line.process, match[1], match[2])
        elif self._is_after_request:
            self._told.read("request")
        else:
            self._loose(number, line)

    def _uvicorn(self, number: int, process: str | None, level: str, message: str) -> None:
        if _ACCESS.match(message):
            self._told.read("access")
        elif (line := startup.parse(message)) is not None:
            self.engines.describe(None, line, self._ts, None)
            self._told.read("start")
        elif (event := event_of(level, "uvicorn", message)) is not None:
            self._event(number, process, level, event)
        else:
            self._told.read("other")

    def _loose(self, number: int, line: Bare) -> None:
        taken = self._tracebacks.take(line.process, line.message)
        if isinstance(taken, Event):
            self._event(number, line.process, None, taken)
        elif taken:
            self._told.read("traceback")
        elif (event := known_event(line.message, is_trouble=True)) is not None:
            self._event(number, line.process, None, event)
        elif _NOISE.match(line.message):
            self._told.read("noise")
        else:
            self._unread(number, line.message)

    def _unread(self, number: int, message: str) -> None:
        """Counts a line that was not understood; shows each shape once."""
        shape = shape_of(message)
        if shape in self._shapes:
            self._told.num_unread += 1
        else:
            self._shapes.add(shape)
            self._told.unread(f"line {number:,}: {shape}")
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.clear()

    def _numbers(self, number: int, head: Head) -> bool:
        """Takes a line of numbers; returns whether it is one."""
        line = iterations.parse(head.message) or stats.parse(head.message)
        if line is None:
            return False
        if self._ts is None:
            self._told.unread(f"line {number:,}: numbers without a time")
            return True
        self._told.read("iteration" if line.is_iteration else "stats")
        self.samples.take(line, head.process, self._ts)
        return True

    def _start(self, number: int, head: Head) -> bool:
        """Takes a line of an engine's start; returns whether it is one."""
        line = startup.parse(head.message, head.file)
        if line is None:
            return False
        rank = dp_rank(head.process)
        self.engines.describe(None if rank is None else str(rank), line, self._ts, head.pid)
        self._told.read("start")
        if line.is_of_engine:
            text = f"Initializing an LLM engine, version {line.columns['version']}"
            event = Event("engine_starting", text)
            self._events.take(event, number, head.process, head.level, self._ts)
        return True

    def _event(self, number: int, process: str | None, level: str | None, event: Event) -> None:
        self._told.read(self._events.take(event, number, process, level, self._ts))

    def _set_time(self, ts: int) -> None:
        """Sets the time of the lines that follow; those before the first time get it too."""
        if self._ts is None:
            self._events.time_is(ts)
        self._ts = ts
