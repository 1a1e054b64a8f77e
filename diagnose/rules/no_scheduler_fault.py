"""no-scheduler-fault: everything that was looked at is well, and here are the numbers.

What it measures
----------------
That no other rule found anything: waiting requests, free KV blocks, preemptions, running requests
against slots, step times. Where something stands still all the same (a step that does not end,
running requests without a token, a queue that only grows) the verdict is `undetermined` instead,
with the symptom and what is missing to explain it.

Why it matters
--------------
"It is not the scheduler" is an answer, and an on-call engineer needs it as much as the other one:
then the model, the client or the network is next.

When it stays quiet
-------------------
Whenever another rule found a problem above `info`. With less than 20 steps it says that there is
not enough data, which is not the same as well.

What to do
----------
If answers were slow all the same, look at the time before the engine (tokenizer, HTTP), at the
model's step time and at the client.

Source
------
Public reports that turned out to be no fault of the scheduler: more running requests make longer
steps; clients that closed their connections; batch sizes without a captured graph.
"""

from __future__ import annotations

from diagnose.finding import (
    NOT_ENOUGH_DATA,
    UNDETERMINED,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Healthy,
    NotMeasured,
    Rejected,
    RuleVerdict,
    Severity,
    Span,
    finding_id,
)
from diagnose.rule import Context, Earlier, Rule, findings_of
from diagnose.stalls import Stall, find_stall
from diagnose.words import percent

ID = "no-scheduler-fault"

MIN_STEPS = 20
"""Working steps needed to call an engine well. Starting value."""

CALM = (
    "Nobody waited for the scheduler. If answers were slow, look at the model, client or network."
)


def decide(context: Context, earlier: Earlier) -> RuleVerdict | None:
    """Returns that all is well, or `undetermined` where something stands still unexplained."""
    if any(finding.severity > Severity.info for finding in findings_of(earlier)):
        return None
    stall = find_stall(context)
    if stall is not None and not _is_meant(stall, earlier):
        return _undetermined(context, stall, earlier)
    steps = context.steps
    if steps.num_working_steps < MIN_STEPS:
        why = f"{steps.num_working_steps} working steps, {MIN_STEPS} are needed"
        return NotMeasured(rule=NOT_ENOUGH_DATA, missing=("steps",), why=why)
    waited, total = steps.num_steps_waiting, steps.num_steps
    number = "not recorded" if waited is None else f"waiting in {waited:,} of {total:,} steps"
    return Healthy(rule=ID, name="scheduler", number=number, sentence=_sentence(context))


def _is_meant(stall: Stall, earlier: Earlier) -> bool:
    """Whether a queue is a backlog that was handed in at once, of which a rule informs."""
    return stall.is_queue and any(found.rule == "seq-slot-limit" for found in findings_of(earlier))


def _sentence(context: Context) -> str:
    steps = context.steps
    if steps.num_steps_waiting is None:
        return "No fault in what is recorded; waiting requests are not."
    if not steps.num_steps_waiting:
        return CALM
    share = percent(steps.num_steps_waiting / max(steps.num_steps, 1))
    if steps.last_waiting:
        return (
            f"No fault found: somebody waited in {share} of steps, {steps.last_waiting:,} still do."
        )
    return f"No fault: somebody waited in {share} of steps, and the queue emptied again."


def _undetermined(context: Context, stall: Stall, earlier: Earlier) -> Finding:
    span = Span(opened_ts=stall.opened_ts, cleared_ts=None)
    return Finding(
        id=finding_id("und", context.scope.engine),
        rule=UNDETERMINED,
        rule_version=RULE.version,
        severity=stall.severity,
        confidence=Confidence(level="low", why="the symptom is measured, no rule explains it"),
        span=span,
        engine=context.scope.engine,
        sentence=stall.sentence,
        symptom=stall.sentence,
        cause=Cause(
            kind="undetermined", sentence=f"undetermined: missing {', '.join(stall.missing)}"
        ),
        rejected=_rejected(earlier),
        evidence=(
            Evidence(
                name=stall.name,
                value=stall.value,
                unit=stall.unit,
                threshold=stall.threshold,
                sql=stall.sql,
                n=context.steps.num_rows,
            ),
        ),
        missing=stall.missing,
        data_quality=context.data_quality,
    )


def _rejected(earlier: Earlier) -> tuple[Rejected, ...]:
    return tuple(
        Rejected(kind="undetermined", name=verdict.name, number=verdict.number)
        for verdict in earlier.values()
        if isinstance(verdict, Healthy)
    )


RULE = Rule(id=ID, version=1, prefix="nsf", page=__doc__ or "", decide=decide)
