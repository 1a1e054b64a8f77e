"""What happened to the engine itself: earlier starts, changed settings, resets, pool."""

from __future__ import annotations

from dataclasses import dataclass, fields

from diagnose.causes.settings_diff import ChangedSetting, changed_settings
from diagnose.facts import EngineSettings
from diagnose.reading import QueryLog, Scope, read_row, read_rows
from telemetry.vocabulary import EventKind

MIN_REQUESTS = 20
"""Requests an earlier start must have seen to be compared with. Starting value."""
CALM_RATIO = 0.1
"""Preemptions per request under which a start was calm. Source: playbook, as for pressure."""

EVENTS_SQL = f"""
SELECT count(*) FILTER (kind = {EventKind.config_changed:d}) AS num_config_changes,
       count(*) FILTER (kind = {EventKind.prefix_cache_reset:d}) AS num_cache_resets,
       min(ts) FILTER (kind = {EventKind.prefix_cache_reset:d}) AS first_reset_ts
FROM request_events WHERE {{where}}
"""

POOL_SQL = """
SELECT sum(num_repeats)::BIGINT AS num_steps,
       sum(num_repeats) FILTER (
           num_blocks_free_unhashed + num_blocks_free_cached + num_blocks_running
           + coalesce(num_blocks_waiting, 0) + coalesce(num_blocks_finished, 0)
           + coalesce(num_blocks_deferred_free, 0) = {pool}
       )::BIGINT AS num_steps_with_whole_pool,
       count(num_blocks_free_unhashed) > 0 AS is_recorded,
       max(num_blocks_waiting) AS max_held,
       max(coalesce(num_blocks_finished, 0) + coalesce(num_blocks_given_up, 0))::BIGINT
           AS max_held_by_ended,
       min(ts) FILTER (
           2 * (num_blocks_waiting + coalesce(num_blocks_finished, 0)
                + coalesce(num_blocks_given_up, 0)) >= {pool}
       ) AS held_since_ts
FROM steps WHERE {where}
"""

LOADS_SQL = """
SELECT (median(service_ns) FILTER (outcome = 'finished'))::BIGINT AS usual_load_ns
FROM connector_loads WHERE {where}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`previous` is the start before this one of the same engine; `None` if the log has none."""

    current: EngineSettings
    previous: EngineSettings | None
    previous_was_calm: bool
    """Whether that start preempted less than one in ten of at least 20 requests."""
    num_starts: int
    num_config_changes: int
    num_cache_resets: int
    num_steps: int
    num_steps_with_whole_pool: int | None
    """Steps in which free and held blocks together were the whole pool; `None`: not recorded."""
    max_blocks_held_by_waiting: int | None
    max_blocks_held_by_ended: int | None
    """Blocks that requests still held which had ended, for a save or its acknowledgement."""
    held_since_ts: int | None
    """When both together first held half of the pool."""
    usual_load_ns: int | None
    first_reset_ts: int | None

    @property
    def changed_settings(self) -> tuple[ChangedSetting, ...]:
        """Settings that are not those of the last start; none where there was none."""
        return () if self.previous is None else changed_settings(self.previous, self.current)


def read_history(log: QueryLog, scope: Scope, settings: EngineSettings) -> History:
    """Returns what happened to an engine in a stretch, and its earlier starts in the log."""
    earlier = _earlier_starts(log, settings)
    previous = earlier[-1] if earlier else None
    events = read_row(log, scope.fill(EVENTS_SQL))
    sql = POOL_SQL.format(where=scope.where(), pool=settings.num_usable_blocks or 0)
    pool = read_row(log, sql)
    whole = pool["num_steps_with_whole_pool"] or 0
    has_connector = settings.kv_connector is not None
    loads = read_row(log, scope.fill(LOADS_SQL)) if has_connector else {}
    return History(
        current=settings,
        previous=previous,
        previous_was_calm=previous is not None and _was_calm(log, previous.engine),
        num_starts=1 + len(earlier),
        num_config_changes=events["num_config_changes"],
        num_cache_resets=events["num_cache_resets"],
        num_steps=pool["num_steps"] or 0,
        num_steps_with_whole_pool=whole if pool["is_recorded"] else None,
        max_blocks_held_by_waiting=pool["max_held"],
        max_blocks_held_by_ended=pool["max_held_by_ended"],
        held_since_ts=pool["held_since_ts"],
        usual_load_ns=loads.get("usual_load_ns"),
        first_reset_ts=events["first_reset_ts"],
    )


def _was_calm(log: QueryLog, engine: int) -> bool:
    row = read_row(
        log,
        f"SELECT (SELECT count(*) FROM preemptions WHERE engine = {engine}) AS num_preemptions, "
        f"(SELECT count(*) FROM requests WHERE engine = {engine}) AS num_requests",
    )
    n: int = row["num_requests"]
    return n >= MIN_REQUESTS and row["num_preemptions"] < CALM_RATIO * n


def _earlier_starts(log: QueryLog, settings: EngineSettings) -> list[EngineSettings]:
    if settings.started_ts is None:
        return []
    names = ", ".join(f.name for f in fields(EngineSettings))
    rows = read_rows(
        log,
        f"SELECT {names} FROM engines WHERE started_ts < {settings.started_ts} "
        f"AND engine <> {settings.engine} ORDER BY started_ts",
    )
    starts = [EngineSettings(**row) for row in rows]
    return [start for start in starts if _same_place(start, settings)]


def _same_place(one: EngineSettings, other: EngineSettings) -> bool:
    names = ("host", "dp_rank", "source", "model")
    return all(getattr(one, name) == getattr(other, name) for name in names)
