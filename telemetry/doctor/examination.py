"""Looks at a step log, its collector and its rings."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from telemetry.doctor.analyst import analyst_checks
from telemetry.doctor.check import Check, utc_text
from telemetry.doctor.checks import engine_health
from telemetry.doctor.deep import check_address, check_running
from telemetry.doctor.exports import export_checks
from telemetry.doctor.facts import SeenRing, facts_of, rings_of
from telemetry.doctor.outside import NEWEST, seen_from_outside
from telemetry.doctor.report import Examination
from telemetry.doctor.retention import retention_checks
from telemetry.doctor.status import status_checks
from telemetry.errors import LogBusy, LogNotFound
from telemetry.store import Log, open_log
from telemetry.store.presence import find_collector

MAX_ENGINES = 10


def examine(
    log: Path, *, deep: bool = False, url: str | None = None, opened: Log | None = None
) -> Examination:
    """Returns the state of a step log and of the rings that belong to it.

    Args:
        deep: have the running engines check their books as well, which stops each for a moment.
        url: with `deep`: have the engine at this address do it, and no other.
        opened: the same log, where somebody has opened it already; it stays open.

    Raises:
        StepscopeError: `url` is no address.
    """
    rings = dict(rings_of(log))
    checks = [
        _collector_check(log, rings),
        *status_checks(log),
        *export_checks(log, find_collector(log)),
        *analyst_checks(log, find_collector(log)),
    ]
    facts: dict[int, dict[str, Any]] = {}
    seen: dict[int, list[dict[str, Any]]] = {}
    try:
        with open_log(log) if opened is None else nullcontext(opened) as reader:
            facts = facts_of(reader)
            seen = seen_from_outside(reader)
            checks.append(_newest_check(reader))
            checks += retention_checks(log, reader)
    except LogBusy as error:
        checks.append(Check("bad", "step log", str(error)))
    except LogNotFound:
        checks.append(Check("unknown", "step log", f"{log} holds none yet"))
    engines = [*facts, *(engine for engine in rings if engine not in facts)]
    engines.sort(key=lambda engine: _started(facts.get(engine), rings.get(engine)), reverse=True)
    shown = engines[:MAX_ENGINES]
    health = [
        engine_health(engine, facts.get(engine), rings.get(engine), seen.get(engine))
        for engine in shown
    ]
    examination = Examination(str(log), checks, health, len(engines) - len(shown))
    if deep:
        examination.deep = check_running(rings) if url is None else [check_address(url)]
    return examination


def _started(facts: dict[str, Any] | None, ring: SeenRing | None) -> int:
    if facts is not None and facts["started_ts"] is not None:
        return int(facts["started_ts"])
    return int(ring.identity["wall_anchor_ns"]) if ring is not None else 0


def _collector_check(log: Path, rings: dict[int, SeenRing]) -> Check:
    notice = find_collector(log)
    if notice is not None:
        text = f"pid {notice.pid}, detail {notice.detail}, queries at {notice.socket}"
        return Check("good", "collector", text)
    num_alive = sum(ring.is_held for ring in rings.values())
    if num_alive:
        text = f"none, and {num_alive} running engine(s) keep only their last minutes: "
        return Check("bad", "collector", text + f"stepscope collect --log {log}")
    return Check("unknown", "collector", "none running; the log is closed")


def _newest_check(log: Log) -> Check:
    newest = log.query(
        "SELECT greatest((SELECT max(ts) FROM steps), (SELECT max(ts) FROM request_events), "
        f"(SELECT max(ts) FROM heartbeats), {NEWEST}) AS ts"
    ).to_pylist()[0]["ts"]
    if newest is None:
        return Check("unknown", "step log", "no row yet")
    return Check("good", "step log", f"newest row {utc_text(newest)} UTC")
