"""One reading of all the collector's numbers: counts out of the log, and what the rings say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import duckdb

from telemetry.exporters import metrics
from telemetry.exporters.attributes import label
from telemetry.exporters.metrics import METRICS, Metric, Reading, Sample
from telemetry.exporters.sights import NS_PER_SECOND, RingSights, Sight
from telemetry.exporters.totals import EngineTotals, LogReader
from telemetry.records import SCHEMA_VERSION
from telemetry.rendering import engine_hex

FRESH_SECONDS = 1.0
"""Two who ask within this time get the same reading."""
REMEMBERED_SECONDS = 900
"""How long an engine that has ended, or whose ring is lost, stays on the page."""
MOST_ENDED = 64
"""Engines that have ended on the page: a crash loop must not flood it."""

_ENGINES = """
SELECT d.engine, d.closed, e.model, e.source, e.version, e.host, e.started_ts
FROM (
  SELECT engine, max(ts) AS ts, bool_or(closed) AS closed FROM drains GROUP BY engine
) d
LEFT JOIN engines e USING (engine)
WHERE d.ts >= {since} OR d.engine IN ({attached})
ORDER BY d.engine IN ({attached}) DESC, d.ts DESC
LIMIT {most}
"""
_FINDINGS = """
SELECT told.engine, told.rule, told.severity,
  bool_or(now.status IN ('open', 'flapping') AND now.severity = told.severity) AS is_active,
  bool_or(coalesce(now.silenced_until_ts > {now}, false)) AS is_silenced
FROM finding_changes told JOIN finding_states now USING (engine, finding)
WHERE told.status IS NOT NULL AND told.engine IN ({engines})
GROUP BY told.engine, told.rule, told.severity
"""


class Numbers:
    """Reads the collector's numbers; may be asked by several threads."""

    def __init__(
        self,
        log: LogReader,
        sights: RingSights,
        own: Callable[[], Iterable[tuple[Metric, Sample]]],
        *,
        version: str,
    ) -> None:
        """`own` are the numbers of the exporters themselves."""
        self._log = log
        self._sights = sights
        self._own = own
        self._version = version
        self._lock = threading.Lock()
        self._totals: dict[int, EngineTotals] = {}
        self._reading: Reading = {}
        self._read_at = float("-inf")
        self.started_ns: dict[str, int] = {}
        """When each engine started, by its label."""

    def read(self) -> Reading:
        """Returns all samples, at most a second old.

        Raises:
            StepscopeError: The log cannot be read now.
        """
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._reading = self._read()
                self._read_at = time.monotonic()
            return self._reading

    def _read(self) -> Reading:
        sights = self._sights.read()
        engines = self._engines(sights)
        reading: dict[str, list[Sample]] = {metric.name: [] for metric in METRICS}
        for metric, sample in self._samples(engines, sights):
            reading[metric.name].append(sample)
        return reading

    def _engines(self, sights: dict[int, Sight]) -> dict[int, dict[str, Any]]:
        """Returns the engines of the page: the attached ones, and those that ended lately."""
        attached = ", ".join(f"{engine}::UBIGINT" for engine in sights) or "NULL"
        since = time.time_ns() - int(REMEMBERED_SECONDS * NS_PER_SECOND)
        sql = _ENGINES.format(since=since, attached=attached, most=len(sights) + MOST_ENDED)
        engines = {row["engine"]: row for row in self._log.query(sql).to_pylist()}
        self._totals = {
            engine: self._totals_of(engine, has_ended=bool(row["closed"]))
            for engine, row in engines.items()
        }
        self.started_ns = {
            engine_hex(engine): row["started_ts"]
            for engine, row in engines.items()
            if row["started_ts"] is not None
        }
        return engines

    def _totals_of(self, engine: int, *, has_ended: bool) -> EngineTotals:
        totals = self._totals.get(engine) or EngineTotals(engine)
        totals.read(self._log, has_ended=has_ended)
        return totals

    def _samples(
        self, engines: dict[int, dict[str, Any]], sights: dict[int, Sight]
    ) -> Iterator[tuple[Metric, Sample]]:
        build = (self._version, str(SCHEMA_VERSION), duckdb.__version__)
        yield metrics.BUILD_INFO, Sample(build, 1)
        for engine, row in engines.items():
            name = engine_hex(engine)
            words = (label(row[column]) for column in ("model", "source", "version", "host"))
            yield metrics.ENGINE_INFO, Sample((name, *words), 1)
            yield from _counts(name, self._totals[engine])
            yield from self._state(name, sights.get(engine), is_closed=bool(row["closed"]))
            if engine in sights:
                for state, num in self._totals[engine].blocks.items():
                    yield metrics.BLOCKS, Sample((name, state), num)
        yield from self._findings(engines, sights)
        yield from self._own()

    def _state(
        self, engine: str, sight: Sight | None, *, is_closed: bool
    ) -> Iterator[tuple[Metric, Sample]]:
        """Yields what the ring's header says, or that the ring is gone."""
        if sight is None:
            yield metrics.UP, Sample((engine,), 0)
            is_lost = not is_closed and self._sights.has_looked
            yield metrics.BLIND, Sample((engine,), int(is_lost))
            return
        yield metrics.UP, Sample((engine,), int(sight.is_up))
        yield metrics.BLIND, Sample((engine,), int(sight.is_blind))
        yield metrics.DRAIN_LAG, Sample((engine,), sight.lag_seconds)
        yield metrics.RECORDER_ERRORS, Sample((engine,), sight.num_errors)
        if sight.is_up:
            yield metrics.HEARTBEAT_AGE, Sample((engine,), sight.heartbeat_age_seconds)

    def _findings(
        self, engines: dict[int, dict[str, Any]], sights: dict[int, Sight]
    ) -> Iterator[tuple[Metric, Sample]]:
        """Yields what is open and what was.

        What somebody silenced has a series of its own while the silence lasts, and the one that
        alerts are made of is 0 then. Of an engine that has ended nothing is open any more.
        """
        listed = ", ".join(f"{engine}::UBIGINT" for engine in engines)
        if not listed:
            return
        sql = _FINDINGS.format(engines=listed, now=time.time_ns())
        for row in self._log.query(sql).to_pylist():
            engine = row["engine"]
            is_active = row["is_active"] and self._lives(engines[engine], sights.get(engine))
            words = (engine_hex(engine), label(row["rule"]), label(row["severity"]))
            is_told = is_active and not row["is_silenced"]
            yield metrics.FINDING_ACTIVE, Sample((*words, "false"), int(is_told))
            if row["is_silenced"]:
                yield metrics.FINDING_ACTIVE, Sample((*words, "true"), int(is_active))

    def _lives(self, engine: dict[str, Any], sight: Sight | None) -> bool:
        """Returns whether an engine has not ended, as far as the rings have been looked at."""
        if engine["closed"]:
            return False
        return not self._sights.has_looked if sight is None else sight.is_up


def _counts(engine: str, totals: EngineTotals) -> Iterator[tuple[Metric, Sample]]:
    """Yields what the log has counted; what was never measured has no sample."""
    for metric, counted in (
        (metrics.PREEMPTIONS, totals.preemptions),
        (metrics.TOKENS_LOST, totals.tokens_lost),
        (metrics.STEPS, totals.steps),
        (metrics.DROPPED, totals.dropped),
    ):
        for word, num in counted.items():
            yield metric, Sample((engine, word), num)
    for metric, number in (
        (metrics.UNATTRIBUTED, totals.num_unattributed),
        (metrics.TOKENS_SCHEDULED, totals.num_tokens_scheduled),
        (metrics.TOKENS_RECOMPUTED, totals.num_tokens_recomputed),
    ):
        if number is not None:
            yield metric, Sample((engine,), number)
