"""admission-deadlock: nothing runs, something waits, and nothing changes.

What it measures
----------------
An unbroken stretch of steps that left requests waiting, had nobody running and scheduled no token,
30 seconds or longer, while the engine was alive. It ends at the first step that schedules a token.

Why it matters
--------------
No request will ever be served again until somebody acts, yet the process lives, `/health` says 200
and the cache gauge may read 0 %. Only token progress tells.

When it stays quiet
-------------------
An empty engine does not wait. A pause that an operator asked for is no deadlock. A running request
without tokens is a hang, not this. Under 30 seconds it may be a cold start.

What to do
----------
The cause names it: most often a request that can never fit. Probe progress (`/live`) instead of
life, restart, then remove the cause.

Source
------
Six public reports of engines that stood still with requests waiting. 30 s: the playbook's starting
value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import VERIFY
from diagnose.causes.chain import links
from diagnose.finding import (
    Action,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Healthy,
    Impact,
    Link,
    NotMeasured,
    Rejected,
    RuleVerdict,
    Severity,
    Span,
)
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.words import connector_name, count, duration, plural
from telemetry.vocabulary import StopReason

ID = "admission-deadlock"

MIN_STUCK_NS = 30 * NS
"""How long nothing may move. Source: playbook."""

OVERSIZE = "request-exceeds-kv-capacity"
CAUSES = (
    OVERSIZE,
    "connector-parked-deadlock",
    "encoder-budget-zero-progress",
    "deferred-slot-exhaustion",
    "remote-kv-wait-stuck",
    "kv-block-leak",
    "grammar-wait-stall",
)
"""Rules whose finding names the cause of a standstill, the most certain first."""

STUCK_SQL = """
WITH stuck AS (
    SELECT *, (step <> lag(step + num_repeats, 1, 0) OVER (ORDER BY step))::INTEGER AS is_first
    FROM steps
    WHERE {where} AND num_running = 0 AND num_waiting > 0 AND num_scheduled_tokens = 0
      AND coalesce(stop_reason_name(stop_reason) NOT IN ('paused_new', 'paused_all'), true)
), numbered AS (
    SELECT *, sum(is_first) OVER (ORDER BY step ROWS UNBOUNDED PRECEDING) AS stretch FROM stuck
)
SELECT min(step)::BIGINT AS first_step, min(ts) AS opened_ts,
       max(coalesce(updated_ts, ts)) AS until_ts,
       max(step) = (SELECT max(step) FROM steps WHERE {where}) AS is_last,
       sum(num_repeats)::BIGINT AS num_steps, max(num_waiting) AS num_waiting,
       arg_max(head_request, step) AS head_request,
       arg_max(head_blocks_needed, step) AS head_blocks_needed,
       arg_max(stop_reason_name(stop_reason), step) AS stop_reason,
       arg_max(num_blocks_free_unhashed + num_blocks_free_cached, step) AS num_blocks_free
FROM numbered GROUP BY stretch ORDER BY opened_ts
"""

NEXT_SQL = (
    "SELECT min(ts) AS ts FROM steps WHERE engine = {engine} AND ts > {after} AND ts <= {end}"
)


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where admission stood still."""
    steps = context.steps
    if steps.num_stuck_steps is None:
        missing = ("steps.num_running", "steps.num_waiting", "steps.num_scheduled_tokens")
        return NotMeasured(rule=ID, missing=missing, why="not recorded")
    if not steps.num_stuck_steps:
        return Healthy(rule=ID, name="stuck scheduler", number="0 steps")
    stretches = [_measured(context, row) for row in context.rows(STUCK_SQL)]
    longest = max(stretches, key=lambda row: (row["is_open"], row["stuck_ns"]), default=None)
    if longest is None or longest["stuck_ns"] < MIN_STUCK_NS:
        number = f"longest {duration(longest['stuck_ns'])}" if longest else "0 steps"
        return Healthy(rule=ID, name="stuck scheduler", number=number)
    return _finding(context, longest, _cause_in(earlier))


def _cause_in(earlier: Earlier) -> Finding | None:
    """Returns what another rule found that explains the standstill."""
    found = (earlier.get(rule) for rule in CAUSES)
    return next((verdict for verdict in found if isinstance(verdict, Finding)), None)


def _measured(context: Context, row: dict[str, Any]) -> dict[str, Any]:
    """Adds how long a stretch lasted: up to the next step, or as long as the engine lived."""
    stopped, end = context.quality.stopped_ts, context.newest_ts
    if row["is_last"]:
        until = end if stopped is None else min(end, stopped)
        is_open = stopped is None
    else:
        sql = NEXT_SQL.format(
            engine=context.scope.engine, after=row["until_ts"], end=context.scope.end_ts
        )
        until, is_open = context.row(sql)["ts"] or row["until_ts"], False
    return row | {"until_ts": until, "is_open": is_open, "stuck_ns": until - row["opened_ts"]}


def _finding(context: Context, stuck: dict[str, Any], why: Finding | None) -> Finding:
    is_open, waited = stuck["is_open"], duration(stuck["stuck_ns"])
    span = Span(opened_ts=stuck["opened_ts"], cleared_ts=None if is_open else stuck["until_ts"])
    cause = _unknown_cause(stuck) if why is None else why.cause
    waiting = plural(stuck["num_waiting"], "request")
    sentence = f"Nothing ran for {waited} while {waiting} waited"
    if why is not None and why.rule == OVERSIZE:
        sentence += f": request {why.affected[0].request} can never fit."
    elif why is not None:
        sentence += f": see {why.rule}."
    else:
        sentence += f"; admission stopped at {stuck['stop_reason'] or 'an unrecorded reason'}."
    return Finding(
        id=RULE.new_id(context),
        rule=ID,
        rule_version=RULE.version,
        severity=Severity.critical,
        confidence=Confidence(
            level="medium" if why is None else "high",
            why="standing still is measured"
            + ("; no measured rule names the cause" if why is None else ""),
        ),
        span=span,
        engine=context.scope.engine,
        sentence=sentence,
        symptom=f"{stuck['num_steps']:,} steps scheduled nothing with {waiting} waiting",
        cause=cause,
        chain=_chain(stuck, cause, why, waiting),
        rejected=_rejected(context, cause),
        evidence=_evidence(context, stuck),
        impact=Impact(
            cost=(f"{waiting} waited {waited} without a token",),
            numbers=(("stuck_ns", stuck["stuck_ns"]), ("num_waiting", stuck["num_waiting"])),
        ),
        num_affected=stuck["num_waiting"],
        actions=(_probe_progress(context),),
        missing=("a rule that explains the stop",) if why is None else (),
        data_quality=context.data_quality,
    )


def _chain(
    stuck: dict[str, Any], cause: Cause, why: Finding | None, waiting: str
) -> tuple[Link, ...]:
    """Returns since when the cause, in which step nothing ran first, and until when."""
    need = stuck["head_blocks_needed"]
    if stuck["stop_reason"] == StopReason.queue_empty.name:  # the scan went on to the end
        first = f"step {stuck['first_step']:,}: nothing ran; all that waited were set aside"
    else:
        first = f"step {stuck['first_step']:,}: nothing ran; the head was stopped by "
        first += f"{stuck['stop_reason'] or 'an unrecorded reason'}"
    if need is not None:
        first += f": it needed {need:,} blocks, {count(stuck['num_blocks_free'])} were free"
    began = None if why is None else min(why.span.opened_ts, stuck["opened_ts"])
    left = f"{waiting} had waited {duration(stuck['stuck_ns'])} without a token"
    return links(cause, began, first, stuck["opened_ts"], left, stuck["until_ts"])


def _unknown_cause(stuck: dict[str, Any]) -> Cause:
    need, free = stuck["head_blocks_needed"], stuck["num_blocks_free"]
    head = f"request {count(stuck['head_request'])} at the head stopped by {stuck['stop_reason']}"
    blocks = "" if need is None else f", needs {need:,} blocks, {count(free)} free"
    return Cause(kind="undetermined", sentence=f"undetermined: {head}{blocks}")


def _rejected(context: Context, cause: Cause) -> tuple[Rejected, ...]:
    if cause.kind == "stuck_loads":
        return ()
    held = context.steps.max_held_by_waiting
    return (
        Rejected(
            kind="stuck_loads",
            name="stuck loads",
            number=f"{connector_name(context.settings.kv_connector)}, {count(held)} held",
        ),
    )


def _evidence(context: Context, stuck: dict[str, Any]) -> tuple[Evidence, ...]:
    sql = context.scope.fill(STUCK_SQL)
    return (
        Evidence(
            name="time without a running request",
            value=stuck["stuck_ns"],
            unit="ns",
            threshold=MIN_STUCK_NS,
            n=stuck["num_steps"],
            sql=sql,
        ),
        Evidence(
            name="requests waiting",
            value=stuck["num_waiting"],
            unit="requests",
            threshold=0,
            sql=sql,
        ),
        Evidence(
            name="blocks the head of the queue needs",
            value=stuck["head_blocks_needed"],
            unit="blocks",
            threshold=stuck["num_blocks_free"],
            threshold_text=f"free {count(stuck['num_blocks_free'])}",
            sql=sql,
        ),
    )


def _probe_progress(context: Context) -> Action:
    ours = context.settings.source in (None, "stepscope")
    probe = "probe /live instead of /health" if ours else "probe token progress, not /health"
    return Action(
        what=f"{probe}; restart the engine, then remove the cause",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="requests in the engine are lost",
        verify=VERIFY,
        revert="none needed",
    )


RULE = Rule(id=ID, version=1, prefix="adl", page=__doc__ or "", decide=decide)
