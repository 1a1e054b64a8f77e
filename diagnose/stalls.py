"""Signs that something is stuck, for the case that no rule explains it.

A sign is not a cause. Each comes as a sentence with its number, and says what is missing to explain
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from diagnose.finding import Number, Severity
from diagnose.reading import NS
from diagnose.rule import Context
from diagnose.words import duration, percent

MIN_STILL_NS = 30 * NS
"""How long requests may run without a token. Source: playbook, as for `admission-deadlock`."""
MIN_STEPS = 100
"""Steps needed to say that a queue only grows. Starting value."""
MIN_QUEUE = 8
"""A shorter queue is not called growing. Starting value; playbook's for imbalance."""
MIN_GROWTH = 2.0
"""Last quarter's queue against the first's. Starting value."""
MIN_WAITING_STEPS = 0.5
"""Share of the steps with a queue that goes with it. Starting value."""
MIN_QUEUED_SHARE = 0.25
"""Share of the requests' time in the queue that is worth a word. Starting value."""
MIN_QUEUE_NS = 5 * NS
"""A shorter window tells nothing of a queue. Source: as for `seq-slot-limit`."""
MIN_QUEUED_REQUESTS = 0.1
"""Share of the requests that spent as much of their own time there: a few late ones are no stall.
Starting value."""

STILL_SQL = """
WITH still AS (
    SELECT ts, coalesce(updated_ts, ts) AS end_ts, step, num_running,
           (step <> lag(step + num_repeats, 1, 0) OVER (ORDER BY step))::INTEGER AS is_first
    FROM steps WHERE {where} AND num_running > 0 AND num_scheduled_tokens = 0
      AND coalesce(token_budget > 0, true)  -- an operator's pause leaves none
), numbered AS (
    SELECT *, sum(is_first) OVER (ORDER BY step ROWS UNBOUNDED PRECEDING) AS stretch FROM still
)
SELECT max(end_ts) - min(ts) AS still_ns, min(ts) AS opened_ts, max(num_running) AS num_running
FROM numbered GROUP BY stretch ORDER BY still_ns DESC LIMIT 1
"""

QUEUE_SQL = """
WITH quarters AS (
    SELECT num_waiting, num_repeats, stop_reason_name(stop_reason) AS stop,
           least(3, (4 * (ts - {start})) // greatest({end} - {start}, 1)) AS quarter
    FROM steps WHERE {where}
)
SELECT count(*) AS n,
       list(DISTINCT quarter) AS quarters,
       avg(num_waiting) FILTER (quarter = 0) AS q0, avg(num_waiting) FILTER (quarter = 1) AS q1,
       avg(num_waiting) FILTER (quarter = 2) AS q2, avg(num_waiting) FILTER (quarter = 3) AS q3,
       mode(stop) FILTER (num_waiting > 0) AS stop
FROM quarters
"""

QUEUED_SQL = f"""
WITH spent AS (
    SELECT request, phase, reason,
           least(coalesce(end_ts, {{end}}), {{end}}) - greatest(start_ts, {{start}}) AS ns
    FROM request_intervals
    WHERE engine = {{engine}} AND phase <> 'load'
      AND start_ts <= {{end}} AND coalesce(end_ts, {{end}}) >= {{start}}
), shares AS (
    SELECT coalesce(sum(ns) FILTER (phase = 'queued'), 0) / greatest(sum(ns), 1) AS share
    FROM spent GROUP BY request
), paused AS (  -- an operator's pause leaves no budget
    SELECT num_waiting, token_budget,
           coalesce(lead(ts) OVER (ORDER BY step), {{end}}) - ts AS ns
    FROM steps WHERE {{where}}
)
SELECT sum(ns) FILTER (phase = 'queued')::BIGINT AS queued_ns, sum(ns)::BIGINT AS all_ns,
       (SELECT sum(num_waiting * ns)::BIGINT FROM paused WHERE token_budget = 0) AS paused_ns,
       (SELECT count(*) FILTER (share >= {MIN_QUEUED_SHARE}) / greatest(count(*), 1) FROM shares)
           AS queued_requests_ratio,
       mode(reason) FILTER (phase = 'queued' AND reason <> 'not_visited') AS reason,
       (SELECT mode(stop_reason_name(stop_reason)) FROM steps
        WHERE {{where}} AND num_waiting > 0 AND stop_reason_name(stop_reason) <> 'queue_empty')
           AS head_reason
FROM spent
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Something that does not move: a sentence, its number and what would explain it."""

    sentence: str
    name: str
    value: Number
    unit: str
    threshold: Number
    opened_ts: int
    severity: Severity
    missing: tuple[str, ...]
    sql: str
    is_queue: bool = True
    """Whether it is about requests that wait, rather than about such as run."""


def find_stall(context: Context) -> Stall | None:
    """Returns the worst sign of standing still; `None` where everything moves."""
    for look in (_still_runners, _growing_queue, _long_queue):
        stall = look(context)
        if stall is not None:
            return stall
    return None


def _still_runners(context: Context) -> Stall | None:
    rows = context.rows(STILL_SQL)
    if not rows or rows[0]["still_ns"] < MIN_STILL_NS:
        return None
    row = rows[0]
    running = row["num_running"]
    return Stall(
        sentence=f"{running:,} running requests got no token for {duration(row['still_ns'])}.",
        name="time without a token",
        value=row["still_ns"],
        unit="ns",
        threshold=MIN_STILL_NS,
        opened_ts=row["opened_ts"],
        severity=Severity.critical,
        missing=("step_requests.zero_reason",),
        sql=context.scope.fill(STILL_SQL),
        is_queue=False,
    )


def _growing_queue(context: Context) -> Stall | None:
    row = context.row(QUEUE_SQL)
    means = [row[name] for name in ("q0", "q1", "q2", "q3")]
    if row["n"] < MIN_STEPS or any(mean is None for mean in means):
        return None
    grows = all(later > sooner for sooner, later in pairwise(means))
    still_there = (context.steps.last_waiting or 0) >= means[2]
    first, last = means[0], means[3]
    if not (grows and still_there and last >= MIN_QUEUE and last >= MIN_GROWTH * first):
        return None
    return Stall(
        sentence=f"The queue only grows: {first:.0f} requests in the first quarter, {last:.0f} in "
        f"the last; admission stops at {row['stop'] or 'an unrecorded reason'}.",
        name="waiting requests, last quarter against first",
        value=round(last / max(first, 1), 2),
        unit="x",
        threshold=MIN_GROWTH,
        opened_ts=context.scope.start_ts,
        severity=Severity.medium,
        missing=(f"a rule for {row['stop'] or 'steps.stop_reason'}",),
        sql=context.scope.fill(QUEUE_SQL),
    )


def _long_queue(context: Context) -> Stall | None:
    steps = context.steps
    waiting = (steps.num_steps_waiting or 0) / max(steps.num_steps, 1)
    if steps.num_rows < MIN_STEPS or waiting < MIN_WAITING_STEPS:
        return None
    if context.scope.duration_ns < MIN_QUEUE_NS:
        return None
    row: dict[str, Any] = context.row(QUEUED_SQL)
    meant = row["paused_ns"] or 0
    share = max((row["queued_ns"] or 0) - meant, 0) / max((row["all_ns"] or 0) - meant, 1)
    if share < MIN_QUEUED_SHARE or row["queued_requests_ratio"] < MIN_QUEUED_REQUESTS:
        return None
    reason, what = row["reason"] or "an unrecorded reason", "for"
    if reason == "behind_head" and row["head_reason"] is not None:
        reason, what = row["head_reason"], "behind a head that waited for"
    return Stall(
        sentence=f"Requests spent {percent(share)} of their time queued, mostly {what} {reason}.",
        name="share of the requests' time spent queued",
        value=share,
        unit="ratio",
        threshold=MIN_QUEUED_SHARE,
        opened_ts=context.scope.start_ts,
        severity=Severity.medium,
        missing=(f"a rule for {reason}",),
        sql=context.scope.fill(QUEUED_SQL),
    )
