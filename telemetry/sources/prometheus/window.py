"""Imports a window of what a Prometheus server has kept of engines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from telemetry.errors import ImportRefused
from telemetry.sources.importing import Import
from telemetry.sources.prometheus.engines import SOURCE, Engines
from telemetry.sources.prometheus.notes import KNOWS_NOT
from telemetry.sources.prometheus.series import MOST_SERIES, Series, series_of
from telemetry.sources.prometheus.server import Labels, Points, PrometheusServer, Window
from telemetry.sources.prometheus.storing import Storing
from telemetry.sources.telling import ImportTold

NS_PER_MS = 1_000_000


def import_window(
    log: Path, server: PrometheusServer, window: Window, moved: Callable[[int, int], None]
) -> ImportTold:
    """Imports what a server has of engines in a window; returns what was read.

    Args:
        log: directory of the step log.
        server: whom to ask.
        window: from when to when.
        moved: is told how many ms of the window are done, and how many there are.

    Raises:
        ImportRefused: The server does not answer, or has nothing of an engine in the window.
    """
    found = server.series(server.engine_selector, window)
    if not found:
        raise ImportRefused(
            f"{server.address} has nothing of a vLLM or an SGLang in this window: does it scrape "
            "one, and is it the right time? Name another with --start, --end or --since"
        )
    name = f"{server.address} ({len(found):,} series)"
    digest = _digest(server, window)
    with Import(log, source=SOURCE, name=name, digest=digest, unit="samples") as job:
        _WindowImport(job, server, window, found).store(moved)
    return job.told


def _digest(server: PrometheusServer, window: Window) -> bytes:
    """Returns the digest of what is asked: a server's past does not change."""
    asked = (
        server.address,
        server.engine_selector,
        window.start_ms,
        window.end_ms,
        window.step_ms,
    )
    return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).digest()


class _WindowImport:
    """One import of a window."""

    def __init__(
        self, job: Import, server: PrometheusServer, window: Window, found: Sequence[Labels]
    ) -> None:
        self._job = job
        self._server = server
        self._window = window
        self._known: dict[frozenset[tuple[str, str]], Series | None] = {}
        self._engines = Engines(server.address)
        for labels in found:
            if (series := self._series(labels)) is not None:
                self._engines.learn(series, None)
        self._instances = sorted({labels["instance"] for labels in found if "instance" in labels})
        self._num_series = len(found)
        start, end = window.start_ms * NS_PER_MS, window.end_ms * NS_PER_MS
        self._storing = Storing(job, self._engines, job.moments(SOURCE, start, end))

    def store(self, moved: Callable[[int, int], None]) -> None:
        """Stores all that the server has: first of the processes, as that tells when they began."""
        server, window = self._server, self._window
        for selector in server.server_selectors(self._instances):
            for _, found in server.samples(selector, window, 4 * len(self._instances)):
                self._store_slice(found)
        for end, found in server.samples(server.engine_selector, window, self._num_series):
            self._store_slice(found)
            moved(end - window.start_ms, window.end_ms - window.start_ms)
        self._note()

    def _store_slice(self, found: Sequence[tuple[Labels, Points]]) -> None:
        by_time: dict[int, list[tuple[Series, float]]] = {}
        for labels, points in found:
            series = self._series(labels)
            if series is None or (series.is_of_server and not self._engines.has_engine(series)):
                continue
            for ms, value in points:
                self._engines.learn(series, value)
                by_time.setdefault(ms * NS_PER_MS, []).append((series, value))
        for ts in sorted(by_time):
            if num_new := self._storing.put(ts, by_time[ts]):
                self._job.told.read("samples", num_new)

    def _series(self, labels: Labels) -> Series | None:
        key = frozenset(labels.items())
        if key not in self._known:
            if len(self._known) >= MOST_SERIES:
                self._known.clear()
            others = {name: value for name, value in labels.items() if name != "__name__"}
            self._known[key] = series_of(labels["__name__"], others)
        return self._known[key]

    def _note(self) -> None:
        notes = self._job.told.notes
        if self._storing.num_there:
            notes.append(
                "samples that the log had already, and that are not in it twice: "
                f"{self._storing.num_there:,}"
            )
        if self._window.step_ms is not None:
            notes.append(
                f"of each {self._window.step_ms / 1000:g} s only the last sample: what went up and "
                "down between is not in the log, and times are those of the steps"
            )
        notes.append("metrics of the server that are not an engine's were not asked for")
        notes.append(KNOWS_NOT)
