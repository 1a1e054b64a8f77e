"""Reads a stretch of a log as a load that can be scheduled again, under whatever settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from diagnose.reading import QueryLog, Scope, read_row, read_rows
from diagnose.replay.client_loop import detect_clients
from diagnose.replay.recorded_measures import measure
from diagnose.replay.recorded_requests import read_requests
from diagnose.replay.recorded_steps import REMEDY, count_steps, learn_step_times
from diagnose.replay.recorded_texts import read_tokens
from diagnose.replay.rows import ReplayError
from diagnose.replay.settings import config_from
from diagnose.replay.workload import Act, DraftRecord, Workload, WorkRequest
from engine.config import EngineConfig
from telemetry.vocabulary import EventKind, PreemptionCause

_EXTENT = """
SELECT (SELECT min(ts) FROM request_arrivals WHERE engine = {engine}
    AND num_steps_in_flight IS NOT NULL) AS first_ts,
  (SELECT max(coalesce(updated_ts, ts)) FROM steps WHERE engine = {engine}) AS last_step_ts,
  (SELECT max(ts) FROM request_finishes WHERE engine = {engine}) AS last_end_ts,
  (SELECT count(*) FROM samples WHERE engine = {engine}) AS num_samples
"""
_LOST = """
SELECT coalesce(sum(last_lost::BIGINT - first_lost::BIGINT + 1), 0)::BIGINT AS num_records
FROM request_events WHERE {where} AND kind = {kind} AND region IN ('events', 'steps')
"""
_ACTS = """
SELECT ts, kind, text, EXISTS (
    SELECT 1 FROM request_events p WHERE p.engine = e.engine AND p.kind = {preempted}
      AND p.cause = {cache_reset} AND p.step = e.step
  ) AS reset_running
FROM request_events e WHERE {where} AND kind IN ({paused}, {unpaused}, {reset}) ORDER BY seq
"""


def read_workload(
    log: QueryLog, engine: int, start_ts: int | None = None, end_ts: int | None = None
) -> Workload:
    """Returns the load of one engine; without times, all of it.

    Args:
        start_ts: ns since the Unix epoch; what is in flight then is taken up as it was.
        end_ts: the same, included.

    Raises:
        ReplayError: the log lacks what a replay needs; the message says what, and the remedy.
        ConfigError: a setting cannot be used by this version.
    """
    config = _config_of(log, engine)
    scope = _scope_of(log, engine, start_ts, end_ts)
    steps = count_steps(log, scope)
    _check_complete(log, scope, steps.num_rows, steps.num_missing)
    step_times = learn_step_times(log, scope, config, steps.num_rows)
    works, num_sessions = read_requests(log, scope, config, int(step_times.mean_ns))
    if not works:
        raise ReplayError(
            f"no request of engine {engine:016x} reached the scheduler in this stretch: "
            "choose a longer one"
        )
    arrived, ends = _ends_of(log, scope, works)
    drafts = _drafts_of(works, config)
    before = sum(work.num_outputs_before for work in works if work.is_finished)
    return Workload(
        engine=engine,
        config=config,
        recorded_config=config,
        requests=tuple(works),
        clients=detect_clients(arrived, ends),
        step_times=step_times,
        tokens=read_tokens(log, scope, config, works),
        start_ts=scope.start_ts,
        duration_ns=scope.duration_ns,
        recorded=measure(log, scope, before),
        acts=tuple(_acts_of(log, scope)),
        drafts=drafts,
        notes=tuple(_notes(works, num_sessions)),
    )


def _config_of(log: QueryLog, engine: int) -> EngineConfig:
    rows = read_rows(log, f"SELECT settings FROM engines WHERE engine = {engine}")
    if not rows or rows[0]["settings"] is None:
        raise ReplayError(
            f"the log does not say how engine {engine:016x} was set up, and scraped metrics alone "
            f"cannot be replayed: {REMEDY}"
        )
    return config_from(rows[0]["settings"])


def _scope_of(log: QueryLog, engine: int, start_ts: int | None, end_ts: int | None) -> Scope:
    extent = read_row(log, _EXTENT.format(engine=engine))
    if extent["last_step_ts"] is None:
        why = "only scraped metrics of it" if extent["num_samples"] else "no step of it"
        raise ReplayError(
            f"engine {engine:016x} cannot be replayed, for the log has {why}: {REMEDY}"
        )
    if extent["first_ts"] is None:
        raise ReplayError(
            f"engine {engine:016x} cannot be replayed, for the log has its steps and not what "
            f"requests arrived: {REMEDY}"
        )
    last = max(extent["last_step_ts"], extent["last_end_ts"] or 0)
    start = extent["first_ts"] if start_ts is None else max(start_ts, extent["first_ts"])
    end = last if end_ts is None else min(end_ts, last)
    if end <= start:
        raise ReplayError(
            f"engine {engine:016x} did nothing in this stretch: choose one after its first request"
        )
    return Scope(engine, start, end)


def _check_complete(log: QueryLog, scope: Scope, num_rows: int, num_missing: int) -> None:
    if num_rows == 0:
        raise ReplayError(f"the log has no step of this stretch: choose another, or {REMEDY}")
    if num_missing > 0:
        raise ReplayError(
            f"{num_missing:,} steps are missing from this stretch: a replay needs all of them; "
            "choose one without a gap (`stepscope doctor` lists them)"
        )
    sql = scope.fill(_LOST.replace("{kind}", str(int(EventKind.records_dropped))))
    lost = read_row(log, sql)["num_records"]
    if lost:
        raise ReplayError(
            f"{lost:,} records were dropped in this stretch: a replay needs all of them; choose "
            "one without drops, and record with a larger ring (STEPSCOPE_RING_MB)"
        )


def _ends_of(
    log: QueryLog, scope: Scope, works: Sequence[WorkRequest]
) -> tuple[list[WorkRequest], list[int | None]]:
    """Returns the requests by arrival, and when each ended (ns since the start)."""
    rows = log.query(scope.fill("SELECT request, ts FROM request_finishes WHERE {where}"))
    requests = rows.column("request").to_pylist()
    ends = dict(zip(requests, rows.column("ts").to_pylist(), strict=True))
    arrived = sorted(works, key=lambda work: work.arrived_ns)
    return arrived, [
        None if work.number not in ends else ends[work.number] - scope.start_ts for work in arrived
    ]


def _drafts_of(works: Sequence[WorkRequest], config: EngineConfig) -> DraftRecord:
    """Returns how likely a draft is right that follows right ones."""
    num_right = num_tried = 0
    placed = chain.from_iterable(work.drafts_placed for work in works)
    accepted = chain.from_iterable(work.drafts_accepted for work in works)
    for num_placed, num_accepted in zip(placed, accepted, strict=True):
        num_right += num_accepted
        num_tried += min(num_placed, num_accepted + 1)
    return DraftRecord(
        num_speculative_tokens=config.speculation.num_speculative_tokens,
        acceptance=num_right / num_tried if num_tried else None,
    )


def _acts_of(log: QueryLog, scope: Scope) -> Iterator[Act]:
    names = {
        "preempted": EventKind.preempted,
        "paused": EventKind.paused,
        "unpaused": EventKind.unpaused,
        "reset": EventKind.prefix_cache_reset,
        "cache_reset": PreemptionCause.cache_reset,
    }
    template = _ACTS
    for name, code in names.items():
        template = template.replace(f"{{{name}}}", str(int(code)))
    for row in read_rows(log, scope.fill(template)):
        ts_ns = row["ts"] - scope.start_ts
        if row["kind"] == EventKind.prefix_cache_reset:
            yield Act(ts_ns=ts_ns, kind="reset_running" if row["reset_running"] else "reset")
        else:
            yield Act(ts_ns=ts_ns, kind="pause", state=row["text"] or "UNPAUSED")


def _notes(works: Sequence[WorkRequest], num_sessions: int) -> Iterator[str]:
    num_unfinished = sum(not work.is_finished for work in works)
    if num_unfinished:
        yield (
            f"{num_unfinished:,} of {len(works):,} requests had not ended: they are given at least "
            "what they had, and are not measured"
        )
    num_early = sum(work.arrived_ns < 0 for work in works)
    if num_early:
        yield (
            f"{num_early:,} requests were in flight when the stretch began: they are taken up with "
            "the outputs that they had; what else the prefix cache held is not known"
        )
    if num_sessions:
        yield f"{num_sessions:,} streaming sessions are left out"
