"""Brings the spans in files into a step log."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from telemetry.errors import ImportRefused
from telemetry.sources.importing import Import
from telemetry.sources.otlp.decoding import NotOtlpError
from telemetry.sources.otlp.files import messages_in
from telemetry.sources.otlp.resources import is_nameless, service_of
from telemetry.sources.otlp.spans import REQUEST_SPAN, Span, take_apart

EARLIEST_TS = 1_420_070_400 * 10**9
"""2015: a span that ended before was written by a clock that was never set."""
LATEST_NS = 24 * 3600 * 10**9
"""How far ahead of ours the clock of whoever wrote the files may be."""


def import_files(job: Import, paths: Iterable[Path]) -> None:
    """Brings what is in the files.

    Raises:
        ImportRefused: A file cannot be read, or no file has a span of vLLM's.
    """
    latest_ts = time.time_ns() + LATEST_NS
    reading = _Reading(job)
    for path in paths:
        num_before = reading.num_messages
        for message in messages_in(path):
            reading.num_messages += 1
            try:
                request = message.decode(message.payload)
            except NotOtlpError as error:
                job.told.unread(f"{message.place}: {error}")
                continue
            taken = take_apart(request, earliest_ts=EARLIEST_TS, latest_ts=latest_ts)
            reading.add(taken.spans)
            reading.num_foreign += taken.num_foreign
            for problem, number in taken.refused.items():
                job.told.unread(f"{message.place}: {problem}", number)
        if reading.num_messages == num_before:
            job.told.unread(f"{path.name}: the file is empty")
    reading.finish()


class _Reading:
    """What has been read so far, and what is to be told of it."""

    def __init__(self, job: Import) -> None:
        self._job = job
        self._described: set[int] = set()
        self._nameless: defaultdict[str, set[object]] = defaultdict(set)
        self.num_messages = 0
        self.num_foreign = 0

    def add(self, spans: list[Span]) -> None:
        for span in spans:
            is_request = span.row["name"] == REQUEST_SPAN
            if span.engine not in self._described:
                self._described.add(span.engine)
                self._job.describe(span.engine, span.description())
            if is_request and is_nameless(span.resource):
                drawn = span.resource.get("service.instance.id")
                self._nameless[service_of(span.resource)].add(drawn)
            self._job.told.read("request" if is_request else "start-up")
        self._job.add("engine_spans", [span.row for span in spans])

    def finish(self) -> None:
        told = self._job.told
        if not told.num_read:
            why = f": {told.examples[0]}" if told.examples else ""
            others = f" ({self.num_foreign:,} of others)" if self.num_foreign else ""
            raise ImportRefused(f"{told.name} has no span of vLLM's{others}{why}")
        if self.num_foreign:
            told.notes.append(f"{self.num_foreign:,} spans that are not vLLM's were left out")
        for service, drawn in self._nameless.items():
            if len(drawn) > 1:
                told.notes.append(
                    f"{len(drawn)} processes of the service {service} sent request spans and name "
                    "neither host nor instance: they count as one engine. To tell replicas apart, "
                    "start each with OTEL_RESOURCE_ATTRIBUTES=service.instance.id=NAME"
                )
        told.notes.append(
            "spans know nothing of preemptions, and nothing of a request that has not finished"
        )
