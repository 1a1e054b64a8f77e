"""kv-preemption-thrash: requests are evicted and let in again without getting anywhere.

What it measures
----------------
Evictions without progress: the request had computed no more tokens than at its best eviction before
and had written no further output. A request that loops has three evictions or more, and at least
three in four of those after its first are of this kind: one return among a hundred that gets a
token further ends no loop. The rule fires when at least one loops and half of all repeated
evictions are of this kind.

Why it matters
--------------
The engine is busy and nothing comes out. The same prompt is computed again and again; everybody
else's decoding slows down beside it. It does not end by itself.

When it stays quiet
-------------------
Under plain pressure each return passes the point of the last eviction, if only by a token: that is
`kv-preemption-pressure`. Where more urgent requests evict them it is `priority-recompute-churn`.
Evictions by a reset of the prefix cache are not counted. A long prefill beside decoding requests is
no thrash: nobody is evicted.

What to do
----------
Let a request in only when all its known tokens fit (`scheduler_reserve_full_isl`; several public
recipes turn it off), keep the prefix cache on, let fewer long requests in at once.

Source
------
Report of long decodes that were admitted on one chunk's worth of space, and of a single request
that evicts itself at the same token for ever. Three evictions: the playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import against_preemption, prefix_cache
from diagnose.causes.chain import chain_of
from diagnose.finding import (
    Action,
    Affected,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Healthy,
    Impact,
    NotMeasured,
    RuleVerdict,
    Severity,
    Span,
)
from diagnose.impact import impact_of
from diagnose.rule import Context, Earlier, Rule
from diagnose.words import plural

ID = "kv-preemption-thrash"

MIN_TIMES = 3
"""Evictions of one request before it counts as looping. Source: playbook."""
MIN_LOOP_SHARE = 0.75
"""Share of one request's returns in vain. Starting value: a token further now and then."""
MIN_SHARE = 0.5
"""Share of all repeated evictions without progress. Starting value."""

SQL = """
WITH lives AS (
    SELECT request, request_id, ts, was_prefill, out_ns,
           num_computed_tokens_lost AS lost, num_output_tokens_kept AS kept,
           num_tokens_recomputed AS recomputed,
           max(num_computed_tokens_lost) OVER before AS best_lost,
           max(num_output_tokens_kept) OVER before AS best_kept
    FROM preemptions
    WHERE {where} AND cause IN ('kv_full', 'priority')
    WINDOW before AS (
        PARTITION BY request ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT request, any_value(request_id) AS request_id, count(*) AS times,
       count(*) FILTER (lost <= best_lost AND coalesce(kept <= best_kept, true)) AS num_stalled,
       count(lost) AS num_known,
       sum(lost)::BIGINT AS num_tokens_lost, sum(recomputed)::BIGINT AS num_tokens_recomputed,
       sum(out_ns)::BIGINT AS evicted_ns, max(lost) AS best,
       min(ts) AS opened_ts, max(ts) AS last_ts
FROM lives GROUP BY request HAVING count(*) > 1
ORDER BY num_stalled DESC, times DESC, request
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where requests loop."""
    if context.steps.num_preempting_steps is None and not context.accounting.num_rows:
        return NotMeasured(rule=ID, missing=("steps.num_preempted",), why="not recorded")
    lives = context.rows(SQL)
    if any(life["num_known"] == 0 for life in lives):
        missing = ("request_events.num_computed_tokens_lost",)
        return NotMeasured(rule=ID, missing=missing, why="progress is not recorded")
    looping = [life for life in lives if _loops(life)]
    repeated = sum(life["times"] - 1 for life in lives)
    stalled = sum(life["num_stalled"] for life in lives)
    if not looping or stalled < MIN_SHARE * repeated:
        return Healthy(rule=ID, name="thrash", number=f"{stalled:,} evictions without progress")
    return _finding(context, looping, stalled, repeated, earlier)


def _loops(life: dict[str, Any]) -> bool:
    """Whether a request came back in vain often enough, and nearly each time."""
    least = max(MIN_TIMES - 1, MIN_LOOP_SHARE * (life["times"] - 1))
    return bool(life["num_stalled"] >= least)


def _finding(
    context: Context,
    looping: list[dict[str, Any]],
    stalled: int,
    repeated: int,
    earlier: Earlier,
) -> Finding:
    worst, storm = looping[0], context.storm
    opened = min(life["opened_ts"] for life in looping)
    is_open = storm is not None and storm.episode.cleared_ts is None
    cleared = None if is_open else max(life["last_ts"] for life in looping)
    span = Span(opened_ts=opened, cleared_ts=cleared)
    cause = _cause(context, earlier)
    loops = plural(len(looping), "request")
    return Finding(
        id=RULE.new_id(context),
        rule=ID,
        rule_version=RULE.version,
        severity=Severity.critical,
        confidence=Confidence(
            level="medium" if cause.kind == "undetermined" else "high",
            why=f"{stalled:,} of {repeated:,} repeated evictions without progress",
        ),
        span=span,
        engine=context.scope.engine,
        sentence=_sentence(cause, worst, loops),
        symptom=f"request {worst['request']} evicted {worst['times']} times, never past "
        f"token {worst['best']:,}",
        cause=cause,
        shares=storm.explanation.shares if storm else (),
        chain=chain_of(storm) if storm else (),
        rejected=storm.explanation.rejected if storm else (),
        evidence=_evidence(context, looping, stalled, repeated),
        impact=impact_of(storm) if storm else Impact(),
        affected=tuple(_affected(life) for life in looping[:20]),
        num_affected=len(looping),
        actions=_actions(context),
        missing=storm.explanation.missing if storm else (),
        data_quality=context.data_quality,
    )


def _sentence(cause: Cause, worst: dict[str, Any], loops: str) -> str:
    where = f"never past token {worst['best']:,}"
    if cause.kind == "oversized_request":
        return f"A request outgrew the KV pool: evicted {worst['times']} times, {where}."
    if cause.kind == "setting":
        return f"Requests are let in before all their tokens fit: {loops} loop, {where}."
    return f"{loops.capitalize()} evicted and let in again without progress, {where}."


def _cause(context: Context, earlier: Earlier) -> Cause:
    oversize = earlier.get("request-exceeds-kv-capacity")
    if isinstance(oversize, Finding):
        return oversize.cause
    if context.settings.reserve_full_prompt is False:
        sentence = "setting: scheduler_reserve_full_isl is off, one chunk's blocks let a request in"
        return Cause(kind="setting", sentence=sentence)
    storm = context.storm
    if storm is not None:
        return storm.explanation.cause
    return Cause(kind="undetermined", sentence="undetermined: no shortage of blocks was recorded")


def _evidence(
    context: Context, looping: list[dict[str, Any]], stalled: int, repeated: int
) -> tuple[Evidence, ...]:
    sql = context.scope.fill(SQL)
    return (
        Evidence(
            name="most evictions of a looping request",
            value=max(life["times"] for life in looping),
            unit="times",
            threshold=MIN_TIMES,
            n=len(looping),
            sql=sql,
        ),
        Evidence(
            name="repeated evictions without progress",
            value=stalled / max(repeated, 1),
            unit="ratio",
            threshold=MIN_SHARE,
            n=repeated,
            sql=sql,
        ),
    )


def _actions(context: Context) -> tuple[Action, ...]:
    settings, storm = context.settings, context.storm
    found = against_preemption(settings, storm.explanation.capacity) if storm else ()
    cache = prefix_cache(settings)
    return (*found, cache) if cache is not None else found


def _affected(life: dict[str, Any]) -> Affected:
    names = ("request", "request_id", "times", "num_tokens_lost", "num_tokens_recomputed")
    return Affected(**{name: life[name] for name in names}, evicted_ns=life["evicted_ns"])


RULE = Rule(
    id=ID,
    version=3,
    prefix="kvt",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("preempt-zero-reclaim-cascade", "priority-recompute-churn"),
)
