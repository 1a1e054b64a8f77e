"""seq-slot-limit: requests wait because all slots are taken, not for want of KV blocks.

What it measures
----------------
Steps in which admission ended at `max_num_seqs` (or `max_num_active_seqs`) with requests waiting.
The rule fires when that ended at least half of the steps that left somebody waiting, at least 50 of
them, for five seconds or longer, while tokens were scheduled, the KV pool was under 85 % used, and
requests spent a tenth of their time in the queue.

Why it matters
--------------
The engine could serve more at once and is told not to. Queue time grows, KV usage does not, and
graphs of the cache show nothing.

When it stays quiet
-------------------
With a full KV pool more slots would only evict. Without progress a full running list is a hang, not
a limit. A few seconds at the limit during a burst are normal. An offline backlog is meant to queue:
where nearly all requests of the window came at once, the finding is for information only.

What to do
----------
Raise `max_num_seqs` up to what the pool holds at the 95th-percentile length; a larger batch costs
time between tokens. Where the pool holds no more, only more replicas help.

Source
------
Report of a running list full of requests that were not scheduled; public measurement of
`max_num_seqs` 16 to 32: mean time between tokens 8.2 to 9.4 ms. 85 %: playbook; five seconds and
what a backlog is were tuned on the fault matrix, the others are starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import VERIFY
from diagnose.capacity import Capacity, measure_capacity
from diagnose.causes.traffic import read_traffic
from diagnose.episodes import Episode, read_episodes
from diagnose.finding import (
    Action,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Healthy,
    Impact,
    NotMeasured,
    Rejected,
    RuleVerdict,
    Severity,
    Span,
)
from diagnose.reading import NS, Scope, read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.words import count, duration, percent, plural

ID = "seq-slot-limit"

MIN_STEPS = 50
"""Steps at the limit needed to judge. Starting value."""
MIN_STEP_SHARE = 0.5
"""Share of the steps with a queue that the slots ended. Starting value."""
MAX_KV_USED = 0.85
"""Part of the KV pool in use, 95th percentile of those steps. Source: playbook."""
MIN_QUEUED_SHARE = 0.1
"""Share of the requests' time spent queued. Starting value."""
MIN_LASTED_NS = 5 * NS
"""Time from the first such step to the last. Source: tuned on seeds 0-5 of benchmarks/faults.py: a
burst at full slots is through within 3 s, too few slots hold up requests for 45 s and more."""
BACKLOG_SHARE = 0.9
"""Share of the window's requests that come at once in a backlog. Source: as `BACKLOG_SPREAD`'s."""
BACKLOG_SPREAD = 0.1
"""At once is within this share of the time that the queue lasts. Source: tuned on seeds 0-5 of
benchmarks/faults.py: 0.06 in a backlog handed in within a second, from 0.5 in traffic."""

MOMENTS_SQL = """
SELECT ts FROM admission_stops
WHERE engine = {engine} AND ts BETWEEN {start} AND {end}
  AND stop_reason IN ('max_num_seqs', 'max_num_active_seqs') AND num_waiting > 0
"""

STEPS_SQL = """
SELECT coalesce(sum(num_repeats), 0)::BIGINT AS num_waiting_steps,
       coalesce(sum(num_repeats) FILTER (is_slots), 0)::BIGINT AS num_slot_steps,
       (quantile_cont(num_blocks_free, 0.05) FILTER (is_slots))::BIGINT AS free_p05,
       coalesce(sum(num_scheduled_tokens) FILTER (is_slots), 0)::BIGINT AS num_tokens,
       max(num_waiting) AS max_waiting,
       arg_max(stop_reason, ts) FILTER (is_slots) AS limit_name,
       max(ts) AS last_ts
FROM (
    SELECT a.*, w.num_scheduled_tokens,
           a.stop_reason IN ('max_num_seqs', 'max_num_active_seqs') AS is_slots
    FROM admission_stops AS a LEFT JOIN token_work AS w USING (engine, step)
    WHERE a.engine = {engine} AND a.ts BETWEEN {start} AND {end} AND a.num_waiting > 0
)
"""

ARRIVED_SQL = f"""
SELECT (quantile_disc(ts, {BACKLOG_SHARE}) - min(ts))::BIGINT AS spread_ns
FROM request_arrivals WHERE {{where}}
"""

QUEUED_SQL = """
SELECT sum(spent) FILTER (phase = 'queued')::BIGINT AS queued_ns, sum(spent)::BIGINT AS all_ns,
       count(DISTINCT request) FILTER (phase = 'queued' AND spent > 0) AS num_queued,
       (quantile_cont(duration_ns, 0.95) FILTER (phase = 'queued'))::BIGINT AS queued_p95_ns
FROM (
    SELECT request, phase, duration_ns,
           least(coalesce(end_ts, {end}), {end}) - greatest(start_ts, {start}) AS spent
    FROM request_intervals
    WHERE engine = {engine} AND phase <> 'load'
      AND start_ts <= {end} AND coalesce(end_ts, {end}) >= {start}
)
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where slots, and nothing else, keep requests waiting."""
    settings, steps = context.settings, context.steps
    recorded = context.row("SELECT count(stop_reason) AS n FROM steps WHERE {where}")["n"]
    if not recorded and steps.num_rows:
        return NotMeasured(rule=ID, missing=("steps.stop_reason",), why="not recorded")
    episodes = read_episodes(
        context.log, context.scope, MOMENTS_SQL, stopped_ts=context.quality.stopped_ts
    )
    slots = count(settings.slots)
    if not episodes:
        number = f"{count(steps.max_running)} of {slots}"
        return Healthy(rule=ID, name="slots", number=number)
    episode = episodes[0]
    stretch = Scope(
        settings.engine, max(episode.opened_ts, context.scope.start_ts), episode.last_ts
    )
    seen = read_row(context.log, stretch.fill(STEPS_SQL))
    queued = read_row(context.log, stretch.fill(QUEUED_SQL))
    pool = settings.num_usable_blocks
    if pool is None or seen["free_p05"] is None:
        missing = ("engines.num_usable_blocks", "steps.num_blocks_free_unhashed")
        return NotMeasured(rule=ID, missing=missing, why="KV usage is not recorded")
    used = 1 - seen["free_p05"] / pool
    share = seen["num_slot_steps"] / max(seen["num_waiting_steps"], 1)
    lasted = stretch.duration_ns
    if not _is_limit(seen, queued, share, used) or lasted < MIN_LASTED_NS:
        number = f"{seen['num_slot_steps']:,} steps at {slots}, {duration(lasted)}, KV "
        number += f"{percent(used)} used"
        return Healthy(rule=ID, name="slots", number=number)
    return _finding(context, episode, stretch, seen | queued | {"share": share, "used": used})


def _is_limit(seen: dict[str, Any], queued: dict[str, Any], share: float, used: float) -> bool:
    return (
        seen["num_slot_steps"] >= MIN_STEPS
        and share >= MIN_STEP_SHARE
        and used < MAX_KV_USED
        and seen["num_tokens"] > 0
        and _queued_share(queued) >= MIN_QUEUED_SHARE
    )


def _is_backlog(context: Context, stretch: Scope) -> bool:
    """Whether nearly all requests of the window came at once, as a batch job hands them in."""
    spread = context.row(ARRIVED_SQL)["spread_ns"]
    return spread is not None and spread <= BACKLOG_SPREAD * stretch.duration_ns


def _handed_in(is_backlog: bool) -> str:
    return ", and all requests came at once: a backlog is meant to queue" if is_backlog else ""


def _queued_share(queued: dict[str, Any]) -> float:
    return (queued["queued_ns"] or 0) / max(queued["all_ns"] or 0, 1)


def _finding(context: Context, episode: Episode, stretch: Scope, seen: dict[str, Any]) -> Finding:
    settings = context.settings
    traffic = read_traffic(context.log, stretch, settings)
    capacity = measure_capacity(traffic, settings, stretch.start_ts, stretch.end_ts)
    span = Span(opened_ts=episode.opened_ts, cleared_ts=episode.cleared_ts)
    is_backlog = _is_backlog(context, stretch)
    limit, slots = seen["limit_name"], settings.slots
    free = f"{percent(seen['used'])} of the KV pool in use"
    cause = Cause(
        kind="setting",
        sentence=f"setting: {limit} is {count(slots)}; {free} while requests waited",
    )
    return Finding(
        id=RULE.new_id(context),
        rule=ID,
        rule_version=RULE.version,
        severity=Severity.info if is_backlog else Severity.medium,
        confidence=Confidence(
            level="high",
            why=f"{percent(seen['share'])} of {seen['num_waiting_steps']:,} steps with a queue",
        ),
        span=span,
        engine=context.scope.engine,
        sentence=f"All {count(slots)} slots were taken while up to {seen['max_waiting']:,} "
        f"requests waited; KV blocks were free{_handed_in(is_backlog)}.",
        symptom=f"{percent(_queued_share(seen))} of the requests' time was spent queued",
        cause=cause,
        rejected=_rejected(context, seen),
        evidence=_evidence(stretch, seen),
        impact=_impact(seen),
        num_affected=seen["num_queued"],
        actions=_actions(context, capacity),
        data_quality=context.data_quality,
    )


def _rejected(context: Context, seen: dict[str, Any]) -> tuple[Rejected, ...]:
    stuck = count(context.steps.num_stuck_steps)
    preempted = count(context.accounting.num_from_kv)
    return (
        Rejected(
            kind="smaller_pool", name="KV shortage", number=f"{percent(seen['used'])} used at most"
        ),
        Rejected(kind="undetermined", name="preemption", number=f"{preempted} for want of blocks"),
        Rejected(kind="undetermined", name="stuck scheduler", number=f"{stuck} steps"),
    )


def _evidence(stretch: Scope, seen: dict[str, Any]) -> tuple[Evidence, ...]:
    sql = stretch.fill(STEPS_SQL)
    return (
        Evidence(
            name="steps with a queue that the slots ended",
            value=seen["share"],
            unit="ratio",
            threshold=MIN_STEP_SHARE,
            n=seen["num_waiting_steps"],
            sql=sql,
        ),
        Evidence(
            name="KV pool in use in those steps, p95",
            value=seen["used"],
            unit="ratio",
            threshold=MAX_KV_USED,
            n=seen["num_slot_steps"],
            sql=sql,
        ),
        Evidence(
            name="share of the requests' time spent queued",
            value=_queued_share(seen),
            unit="ratio",
            threshold=MIN_QUEUED_SHARE,
            n=seen["num_queued"],
            sql=stretch.fill(QUEUED_SQL),
        ),
        Evidence(
            name="tokens scheduled in those steps",
            value=seen["num_tokens"],
            unit="tokens",
            n=seen["num_slot_steps"],
            sql=sql,
        ),
    )


def _impact(seen: dict[str, Any]) -> Impact:
    queued = seen["queued_p95_ns"]
    return Impact(
        cost=(f"{plural(seen['num_queued'], 'request')} queued, up to {seen['max_waiting']:,}",),
        users=(f"first token waits {duration(queued)} in the queue at p95",),
        numbers=(
            ("num_requests_queued", seen["num_queued"]),
            ("max_waiting", seen["max_waiting"]),
            ("queued_p95_ns", queued),
            ("queued_ratio", _queued_share(seen)),
        ),
    )


def _actions(context: Context, capacity: Capacity) -> tuple[Action, ...]:
    settings, holds = context.settings, capacity.holds
    name, old, active = "max_num_seqs", settings.max_num_seqs, settings.max_num_active_seqs
    if active is not None and old is not None and active < old:
        name, old = "max_num_active_seqs", active
    if old is not None and holds is not None and holds > old:
        new = max(min(holds, capacity.peak_in_flight), old + 1)
        flag = f"--{name.replace('_', '-')}"
        return (
            Action(
                what=f"the pool holds {holds} {capacity.these} to their end",
                flag=flag,
                old=str(old),
                new=str(new),
                applies="restart",
                trade_off="larger batches take longer: more time between tokens",
                verify=VERIFY,
                revert=f"{flag} {old}",
            ),
        )
    return (
        Action(
            what="add a replica, or send less: the pool holds no more such requests",
            flag=None,
            old=None,
            new=None,
            applies="client",
            trade_off="more hardware, or less load",
            verify=VERIFY,
            revert="remove the replica",
        ),
    )


RULE = Rule(
    id=ID,
    version=2,
    prefix="ssl",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("admission-deadlock", "deferred-slot-exhaustion"),
)
