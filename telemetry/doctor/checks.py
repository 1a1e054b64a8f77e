"""The checks of one engine: each says what it looked at, with its number."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from telemetry.doctor.check import (
    Check,
    Level,
    count_text,
    phase_text,
    seconds_text,
    utc_text,
)
from telemetry.doctor.facts import SeenRing
from telemetry.doctor.outside import outside_checks
from telemetry.doctor.plugin import plugin_checks, plugin_report
from telemetry.doctor.report import EngineHealth
from telemetry.rendering import engine_hex, printable

SLOW_BEAT_NS = 2_000_000_000
"""An engine beats four times a second; after this long without, it is stopped or stuck in C."""
MAX_DRIFT_NS = 100_000_000


def engine_health(
    engine: int,
    facts: dict[str, Any] | None,
    ring: SeenRing | None,
    seen: list[dict[str, Any]] | None = None,
) -> EngineHealth:
    """Returns all checks of an engine; `facts` are of the log, `ring` is its ring if it has one.

    `seen` is what sources saw of it (`outside`): all there is of an engine that nobody records.
    """
    description = ring.description if ring is not None else {}
    plugin = plugin_report({**description, **_known(facts)})
    health = EngineHealth(engine_hex(engine), _title(facts, ring), plugin=plugin)
    if facts is None:
        health.checks.append(Check("warn", "recording", "a ring that no collector has read yet"))
        facts = {}
    if seen and ring is None and facts.get("num_commits") is None and not facts.get("steps"):
        health.checks += [*outside_checks(seen), *_missing(facts), *plugin_checks(plugin)]
        return health
    health.checks += [
        _life(facts, ring),
        _recording(facts, ring),
        _drops(facts),
        *_counters(facts, ring),
        _errors(facts, ring),
        *_lag(facts, ring),
        _clock(facts),
        *_missing(facts),
        *plugin_checks(plugin),
    ]
    return health


def _known(facts: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (facts or {}).items() if value is not None}


def _title(facts: dict[str, Any] | None, ring: SeenRing | None) -> str:
    known = {**(ring.identity if ring is not None else {}), **_known(facts)}
    parts = [
        known.get("model"),
        " ".join(str(known[k]) for k in ("source", "version") if known.get(k)),
        f"pid {known['pid']}" if known.get("pid") else None,
        f"on {known['host']}" if known.get("host") else None,
        f"at {known['api_url']}" if known.get("api_url") and not known.get("pid") else None,
    ]
    return "  ".join(printable(str(part)) for part in parts if part)


def _life(facts: dict[str, Any], ring: SeenRing | None) -> Check:
    if (failure := _failure(facts)) is not None:
        return failure
    if facts.get("died_ts") is not None:
        where = f"step {count_text(facts['died_step'])}, in phase {phase_text(facts['died_phase'])}"
        return Check(
            "bad", "died", f"at {where}; last sign of life {utc_text(facts['died_ts'])} UTC"
        )
    if ring is None:
        if facts.get("closed"):
            return Check("good", "ended", "said good-bye and was drained to its end")
        return Check("warn", "gone", "its ring is gone and was not drained to its end")
    state = ring.state
    where = f"step {count_text(state.current_step)}, in phase {phase_text(state.phase)}"
    if state.closed:
        return Check("good", "ended", f"at {where}; the ring waits to be drained")
    if not ring.is_held:
        return Check("bad", "died", f"at {where}; the ring waits to be drained")
    beat = ring.now - state.heartbeat_ns
    since = seconds_text(ring.now - state.phase_since_ns)
    text = f"{where} for {since}, beat {seconds_text(beat)} ago"
    return Check("good" if beat < SLOW_BEAT_NS else "warn", "alive", text)


def _failure(facts: dict[str, Any]) -> Check | None:
    """Returns how an engine failed that has done no step since; None where none has."""
    step, last_step = facts.get("failed_step"), facts.get("last_step")
    if step is None or (last_step is not None and step <= last_step):
        return None
    why = facts.get("failure") or "no reason given"
    return Check("bad", "failed", f"in step {count_text(step)}: {why}; see the engine's own log")


def _recording(facts: dict[str, Any], ring: SeenRing | None) -> Check:
    of_engine = _most(
        facts.get("beat_steps"), facts.get("num_steps"), ring and ring.state.num_steps
    )
    steps = facts.get("steps") or 0
    if of_engine is None and steps:
        told = f"{count_text(steps)} steps; how many the engine ran was never seen"
        return Check("unknown", "recording", told)
    if of_engine is None:
        return Check("unknown", "recording", "no step yet")
    text = f"{count_text(steps)} of {count_text(of_engine)} steps"
    missing = of_engine - steps - int(facts.get("steps_dropped") or 0)
    if missing > 0 and ring is not None:
        return Check("good", "recording", f"{text}, {count_text(missing)} still in the ring")
    if missing > 0:
        return Check("bad", "recording", f"{text}, {count_text(missing)} missing without a trace")
    return Check("good", "recording", text)


def _drops(facts: dict[str, Any]) -> Check:
    names = {
        "steps_dropped": "steps",
        "events_dropped": "events",
        "dense_dropped": "rows of requests in steps",
        "bytes_dropped": "bytes of text",
    }
    parts = [f"{count_text(int(facts[k]))} {name}" for k, name in names.items() if facts.get(k)]
    if not parts:
        return Check("good", "dropped", "0")
    text = f"{', '.join(parts)} in {facts['num_drops']} gap(s): raise STEPSCOPE_RING_MB"
    return Check("warn", "dropped", text)


def _counters(facts: dict[str, Any], ring: SeenRing | None) -> Iterator[Check]:
    own = _most(
        facts.get("preemptions_total"),
        facts.get("beat_preemptions"),
        ring and ring.state.num_preemptions,
    )
    rows = facts.get("preempted") or 0
    if own is None:
        yield Check("unknown", "counters", "the engine's counter of preemptions was never seen")
    elif own == rows:
        yield Check("good", "counters agree", f"preemptions {count_text(rows)} = {count_text(own)}")
    else:
        text = f"preemptions {count_text(rows)} recorded, "
        text += f"{count_text(own)} by the engine's own counter"
        yield Check("warn", "counters differ", text)
    arrived, finished = facts.get("arrived") or 0, facts.get("finished") or 0
    yield Check(
        "good" if arrived >= finished else "warn",
        "requests",
        f"{count_text(arrived)} arrived, {count_text(finished)} finished",
    )


def _errors(facts: dict[str, Any], ring: SeenRing | None) -> Check:
    errors = _most(facts.get("errors"), ring and ring.state.recorder_errors)
    if errors is None:
        return Check("unknown", "recorder", "its errors were never seen")
    text = f"{count_text(errors)} errors" + (": see the engine's own log" if errors else "")
    return Check("warn" if errors else "good", "recorder", text)


def _lag(facts: dict[str, Any], ring: SeenRing | None) -> Iterator[Check]:
    if ring is None:
        return
    behind = ring.state.published - int(facts.get("num_commits") or 0)
    drained = facts.get("drained_ts")
    when = (
        "never read"
        if drained is None
        else f"last read {seconds_text(time.time_ns() - drained)} ago"
    )
    level: Level = "good" if behind <= 0 or ring.is_held else "warn"
    yield Check(level, "lag", f"{count_text(max(behind, 0))} commits in the ring only, {when}")


def _clock(facts: dict[str, Any]) -> Check:
    drift = facts.get("drift_ns")
    if drift is None or (facts.get("num_anchors") or 0) < 2:
        return Check("unknown", "clock", "drift not measured yet")
    level: Level = "good" if abs(drift) < MAX_DRIFT_NS else "warn"
    text = f"wall clock {drift / 1e6:+.1f} ms off the engine's ({facts['num_anchors']} anchors)"
    return Check(level, "clock", text)


def _missing(facts: dict[str, Any]) -> Iterator[Check]:
    lacks = []
    if facts.get("settings") is None:
        lacks.append("settings")
    if facts.get("steps"):
        if not facts.get("num_forward"):
            lacks.append("forward time")
        if not facts.get("num_blocks"):
            lacks.append("KV blocks")
    if lacks:
        yield Check("unknown", "not recorded", ", ".join(lacks))


def _most(*values: Any) -> int | None:
    known = [int(value) for value in values if value is not None]
    return max(known, default=None)
