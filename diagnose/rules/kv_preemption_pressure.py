"""kv-preemption-pressure: more requests are let in than the KV pool holds to their end.

What it measures
----------------
Episodes of preemptions for want of KV blocks. One is judged by preemptions for each request that
ended in it (0.1), by the most evictions of one request (more than 5), and by the tail of pauses
inside answers (a quarter longer, and long enough to be noticed). The share of steps that preempted
stands beside them (5 %), but does not decide alone: with long outputs a storm that evicts every
request twice preempts in 3 % of its steps.

Why is worked out from the requests around: when they came, how long they were, how urgent, what was
set otherwise at the last start, who else held blocks. Each change that did happen is taken out of
the recorded load, alone and with the others, and the load is scheduled again: `shares` are what
each accounts for, with what is left unexplained. `stepscope diagnose --thorough` does so however
long it takes; by default it is left out where it would take more than about two seconds.

Why it matters
--------------
Each eviction throws computed tokens away. The work is done again, and the evicted answer stops in
the middle of a sentence. The median of first tokens stays calm while the tail of pauses grows.

When it stays quiet
-------------------
A full cache without preemptions is no pressure. Evictions by a reset of the prefix cache have free
blocks and are not counted. `guard-light-preemption` silences what nobody feels,
`kv-preemption-thrash` explains evictions without progress, `priority-recompute-churn` those of the
same requests by more urgent ones, and where most evictions are due to a
request that can never fit, `request-exceeds-kv-capacity` is the answer.

What to do
----------
Let in no more requests than the pool holds at their 95th-percentile length (`max_num_seqs`), give
the pool more blocks, or keep 2 to 5 % of it from admissions (`watermark`). More than that only
costs throughput. `gpu_memory_utilization` is no remedy: it is near its safe end by default.

Source
------
Public sweep of the watermark: 1,065 preemptions for 450 requests fell to 187 at 5 %, pauses p99
from 40.6 to 17.7 ms, first tokens p50 from 6.6 to 11.2 s. Report of default slots that freeze 2 %
of answers in mid-stream. Thresholds are the playbook's starting values.
"""

from __future__ import annotations

from diagnose.advice import against_preemption
from diagnose.causes.chain import chain_of
from diagnose.effects import predict_effects
from diagnose.finding import (
    Evidence,
    Finding,
    Healthy,
    NotMeasured,
    RuleVerdict,
    Severity,
    Suppressed,
)
from diagnose.impact import impact_of
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.storm import Storm
from diagnose.words import plural

ID = "kv-preemption-pressure"

MIN_STEPS = 20
"""Working steps needed before anything is judged. Starting value."""
PER_REQUEST = 0.1
"""Preemptions for each request that ended. Source: playbook."""
MAX_TIMES = 5
"""More evictions of one request than this. Source: playbook."""
STEP_RATIO = 0.05
"""Share of steps that preempt; shown, not decisive. Source: playbook."""
TAIL_RATIO = 1.25
"""Growth of the tail of pauses. Source: playbook's guard."""
FELT_PAUSE_NS = NS // 4
"""A shorter pause is not noticed in streamed text. Starting value."""

HEAD_SHORT_SQL = """
SELECT count(*) AS n, count(*) FILTER (head_blocks_needed > num_blocks_free) AS num_short
FROM admission_stops WHERE {where}
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where an episode is more than light."""
    if context.steps.num_preempting_steps is None and not context.accounting.num_rows:
        return NotMeasured(rule=ID, missing=("steps.num_preempted",), why="not recorded")
    storm = context.storm
    if storm is None:
        return Healthy(rule=ID, name="preemptions", number="0 for want of blocks")
    num_steps = context.steps.num_working_steps
    if num_steps < MIN_STEPS:
        why = f"{num_steps} working steps, {MIN_STEPS} are needed"
        return NotMeasured(rule=ID, missing=("steps",), why=why)
    if not _is_pressure(storm):
        number = f"{storm.per_request:.2f} per request, under {PER_REQUEST:g}"
        return Healthy(rule=ID, name="preemptions", number=number)
    oversize = earlier.get("request-exceeds-kv-capacity")
    if isinstance(oversize, Finding) and _is_due_to(context, storm, oversize):
        return Suppressed(rule=ID, by=oversize.rule, number=oversize.symptom)
    return _finding(context, storm)


def _is_pressure(storm: Storm) -> bool:
    pauses = storm.pauses
    felt = (
        pauses.tail_ratio is not None
        and pauses.tail_ratio > TAIL_RATIO
        and (pauses.all_p99_ns or 0) >= FELT_PAUSE_NS
    )
    return storm.per_request >= PER_REQUEST or storm.account.max_times > MAX_TIMES or felt


def _is_due_to(context: Context, storm: Storm, oversize: Finding) -> bool:
    """Whether most evictions concern the requests that can never fit."""
    numbers = ", ".join(str(paid.request) for paid in oversize.affected) or "NULL"
    sql = (
        f"SELECT count(*) FILTER (request IN ({numbers}) OR beneficiary IN ({numbers})) AS due "
        "FROM preemptions WHERE {where}"
    )
    return int(context.row(sql)["due"]) * 2 >= storm.account.num_rows


def _finding(context: Context, storm: Storm) -> Finding:
    account, explanation = storm.account, storm.explanation
    actions = against_preemption(context.settings, explanation.capacity)
    effects = predict_effects(context.log, storm.episode.stretch, actions, storm.work_limit)
    return Finding(
        id=RULE.new_id(context),
        rule=ID,
        rule_version=RULE.version,
        severity=Severity.high,
        confidence=explanation.confidence,
        span=storm.span,
        engine=context.scope.engine,
        sentence=explanation.headline,
        symptom=f"{plural(account.num_from_kv, 'preemption')} for want of KV blocks",
        cause=explanation.cause,
        shares=explanation.shares,
        chain=chain_of(storm),
        rejected=explanation.rejected,
        evidence=_evidence(context, storm),
        impact=impact_of(storm),
        affected=account.victims,
        num_affected=account.num_affected,
        actions=effects.actions,
        prediction=effects.sentence,
        missing=explanation.missing,
        data_quality=context.data_quality,
    )


def _evidence(context: Context, storm: Storm) -> tuple[Evidence, ...]:
    account, capacity, stretch = storm.account, storm.explanation.capacity, storm.episode.stretch
    head_sql = stretch.fill(HEAD_SHORT_SQL)
    head = context.log.query(head_sql).to_pylist()[0]
    ended = "finished request" if account.num_finished else "request"
    evidence = [
        Evidence(
            name="steps that preempted",
            value=storm.step_ratio,
            unit="ratio",
            threshold=STEP_RATIO,
            n=storm.steps.num_working_steps,
            sql=stretch.fill(
                "SELECT count(*) FILTER (num_preempted > 0) / count(*) AS ratio FROM steps "
                "WHERE {where} AND (num_scheduled_tokens > 0 OR num_preempted > 0)"
            ),
        ),
        Evidence(
            name=f"preemptions per {ended}",
            value=storm.per_request,
            unit="",
            threshold=PER_REQUEST,
            n=storm.num_judged_requests,
            sql=account.sql,
        ),
        Evidence(
            name="most evictions of one request",
            value=account.max_times,
            unit="times",
            threshold=MAX_TIMES,
            n=account.num_affected,
            sql=account.sql,
        ),
        Evidence(
            name="steps in which the queue head was short of blocks",
            value=head["num_short"] / head["n"] if head["n"] else None,
            unit="ratio",
            n=head["n"],
            sql=head_sql,
        ),
    ]
    if capacity.peak_blocks is not None and capacity.pool is not None:
        evidence.append(
            Evidence(
                name=f"blocks {capacity.peak_running} such requests need at full length",
                value=capacity.peak_blocks,
                unit="blocks",
                threshold=capacity.pool,
                threshold_text=f"pool {capacity.pool:,}",
                n=capacity.num_measured,
                provenance="derived",
                sql=storm.explanation.traffic_sql,
            )
        )
    return tuple(evidence)


RULE = Rule(
    id=ID,
    version=2,
    prefix="kvp",
    page=__doc__ or "",
    decide=decide,
    silenced_by=(
        "preempt-zero-reclaim-cascade",
        "guard-light-preemption",
        "kv-preemption-thrash",
        "priority-recompute-churn",
    ),
)
