"""What the step log and the rings say about the recording of each engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telemetry.errors import RingError
from telemetry.ring import RingReader, RingState, ring_directories
from telemetry.ring.place import SUFFIX
from telemetry.sources.vllm.compatibility import GIVEN_UP
from telemetry.store import Log
from telemetry.store.presence import find_collector
from telemetry.vocabulary import EventKind


@dataclass(frozen=True, slots=True)
class SeenRing:
    """A ring's header, as seen in passing."""

    state: RingState
    is_held: bool
    identity: dict[str, Any]
    description: dict[str, Any]
    """The engine's row as the engine wrote it; empty before it has."""
    now: int
    """The present on the engine's clock."""


def rings_of(log: Path) -> Iterator[tuple[int, SeenRing]]:
    """Yields the rings that belong to a log, by engine."""
    for directory in _directories(log):
        paths = sorted(directory.glob(f"*{SUFFIX}")) if directory.is_dir() else []
        for path in paths:
            try:
                reader = RingReader(path)
            except (OSError, RingError):
                continue
            if reader.log in (None, log.resolve()):
                now = (
                    reader.word("wall_anchor_ns")
                    + time.monotonic_ns()
                    - reader.word("monotonic_anchor_ns")
                )
                yield (
                    reader.engine,
                    SeenRing(
                        reader.state(), reader.is_held, reader.identity, _description(reader), now
                    ),
                )
            reader.close()


def _directories(log: Path) -> list[Path]:
    """Returns where rings may lie: where the collector looks for them, and where one would."""
    notice = find_collector(log)
    known = [] if notice is None else [Path(each) for each in notice.ring_directories]
    return list(dict.fromkeys((*known, *ring_directories(log))))


def _description(reader: RingReader) -> dict[str, Any]:
    try:
        return reader.description()[1]
    except RingError:  # it is being rewritten without end, or damaged
        return {}


def facts_of(log: Log) -> dict[int, dict[str, Any]]:
    """Returns, per engine, one row of all that the log says about its recording."""
    rows = log.query(
        f"""
        WITH counted AS (
            SELECT engine, count(*) AS steps, max(step) AS last_step,
                max(num_preemptions_total) AS preemptions_total,
                count(forward_ns) AS num_forward, count(num_blocks_free_cached) AS num_blocks
            FROM steps GROUP BY engine
        ), happened AS (
            SELECT engine,
                count(*) FILTER (kind = {EventKind.preempted:d}) AS preempted,
                count(*) FILTER (kind = {EventKind.arrived:d}) AS arrived,
                count(*) FILTER (kind = {EventKind.finished:d}) AS finished,
                count(*) FILTER (kind = {EventKind.records_dropped:d}) AS num_drops,
                sum(last_lost - first_lost + 1) FILTER (region = 'steps') AS steps_dropped,
                sum(last_lost - first_lost + 1) FILTER (region = 'events') AS events_dropped,
                sum(last_lost - first_lost + 1) FILTER (region = 'blob') AS bytes_dropped,
                sum(last_lost - first_lost + 1) FILTER (region = 'step_requests') AS dense_dropped,
                max(ts) FILTER (kind = {EventKind.engine_died:d}) AS died_ts,
                arg_max(step, ts) FILTER (kind = {EventKind.engine_died:d}) AS died_step,
                arg_max(reason, ts) FILTER (kind = {EventKind.engine_died:d}) AS died_phase,
                arg_max(step, ts) FILTER (kind = {EventKind.engine_failed:d}) AS failed_step,
                arg_max(text, ts) FILTER (kind = {EventKind.engine_failed:d}) AS failure,
                arg_max(text, ts) FILTER (kind = {EventKind.recorder_degraded:d}
                    AND contains(text, '{GIVEN_UP}')) AS gave_up_text
            FROM request_events GROUP BY engine
        ), beaten AS (
            SELECT engine, max(ts) AS beat_ts, max(num_steps) AS beat_steps,
                max(num_preemptions) AS beat_preemptions, max(num_recorder_errors) AS errors
            FROM heartbeats GROUP BY engine
        ), drained AS (
            SELECT engine, max(num_commits) AS num_commits, max(num_steps) AS num_steps,
                bool_or(closed) AS closed, max(ts) AS drained_ts
            FROM drains GROUP BY engine
        ), clocks AS (
            SELECT engine, count(*) AS num_anchors, arg_max(wall_ns - ts, ts) AS drift_ns
            FROM clock_anchors GROUP BY engine
        )
        SELECT * FROM (SELECT engine, started_ts, model, source, version, pid, host, settings,
                num_usable_blocks, api_url FROM engines)
            FULL JOIN drained USING (engine) LEFT JOIN counted USING (engine)
            LEFT JOIN happened USING (engine) LEFT JOIN beaten USING (engine)
            LEFT JOIN clocks USING (engine)
        """
    ).to_pylist()
    return {row["engine"]: row for row in rows}
